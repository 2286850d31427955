//! Signs certificates of the listener and of callers, and lists those that it has revoked.

use std::sync::atomic::{AtomicU64, Ordering};

use jiff::{ToSpan as _, Zoned, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
    date_time_ymd, string::Ia5String,
};

/// For how many days a certificate is good, unless a test says otherwise.
const DAYS: i64 = 30;

/// The day from which a certificate is good, unless a test says otherwise.
const LONG_AGO: (i32, u8, u8) = (2000, 1, 1);

/// An authority that signs certificates. It has no file.
pub struct TestAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    n_signed: AtomicU64,
}

/// A certificate with its key, both as PEM.
#[derive(Clone)]
pub struct SignedCertificate {
    pub certificate: String,
    pub key: String,
    serial: u64,
}

impl TestAuthority {
    pub fn new(name: &str) -> Self {
        let issuer = CertifiedIssuer::self_signed(params_of_authority(name), key());
        Self::of(issuer.expect("it signs itself"))
    }

    /// Returns an authority whose certificate this one signs.
    pub fn intermediate(&self, name: &str) -> Self {
        let serial = self.next_serial();
        let mut params = params_of_authority(name);
        params.serial_number = Some(SerialNumber::from(serial));
        let issuer = CertifiedIssuer::signed_by(params, key(), &self.issuer);
        Self::of(issuer.expect("it can be signed"))
    }

    fn of(issuer: CertifiedIssuer<'static, KeyPair>) -> Self {
        Self {
            issuer,
            n_signed: AtomicU64::new(0),
        }
    }

    fn next_serial(&self) -> u64 {
        1 + self.n_signed.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the certificate of the authority itself, as PEM.
    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// Signs a certificate for a server or a caller with these names. A name with `:` is a URI,
    /// and the others are DNS names.
    pub fn sign(&self, names: &[&str]) -> SignedCertificate {
        self.sign_for_days(names, DAYS)
    }

    /// Signs a certificate that is good for this number of days. It has expired if `days` is below 0.
    pub fn sign_for_days(&self, names: &[&str], days: i64) -> SignedCertificate {
        self.sign_until(names, in_days(days))
    }

    /// Signs a certificate that is good until a day begins: its year, month and day.
    pub fn sign_until(&self, names: &[&str], end: (i32, u8, u8)) -> SignedCertificate {
        self.sign_names(named(names), LONG_AGO, end)
    }

    /// Signs a certificate that is good from the day after tomorrow on.
    pub fn sign_for_later(&self, names: &[&str]) -> SignedCertificate {
        self.sign_names(named(names), in_days(2), in_days(DAYS))
    }

    /// Signs a certificate with these names as URIs, whatever they look like.
    pub fn sign_uris(&self, uris: &[&str]) -> SignedCertificate {
        let names = uris.iter().map(|uri| SanType::URI(ascii(uri)));
        self.sign_names(names.collect(), LONG_AGO, in_days(DAYS))
    }

    fn sign_names(
        &self,
        names: Vec<SanType>,
        begin: (i32, u8, u8),
        end: (i32, u8, u8),
    ) -> SignedCertificate {
        let serial = self.next_serial();
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from(serial));
        params.not_before = date_time_ymd(begin.0, begin.1, begin.2);
        params.not_after = date_time_ymd(end.0, end.1, end.2);
        params.subject_alt_names = names;
        let key = key();
        let signed = params.signed_by(&key, &self.issuer);
        SignedCertificate {
            certificate: signed.expect("it can be signed").pem(),
            key: key.serialize_pem(),
            serial,
        }
    }

    /// Returns the list of revoked certificates, as PEM.
    pub fn revocations(&self, revoked: &[&SignedCertificate]) -> String {
        self.revocations_until(revoked, in_days(DAYS))
    }

    /// Returns a list of revoked certificates whose time for the next update has passed, as PEM.
    pub fn old_revocations(&self, revoked: &[&SignedCertificate]) -> String {
        self.revocations_until(revoked, in_days(-2))
    }

    fn revocations_until(
        &self,
        revoked: &[&SignedCertificate],
        (year, month, day): (i32, u8, u8),
    ) -> String {
        let next_update = date_time_ymd(year, month, day);
        let (year, month, day) = in_days(-10);
        let this_update = date_time_ymd(year, month, day);
        let revoked = revoked.iter().map(|certificate| RevokedCertParams {
            serial_number: SerialNumber::from(certificate.serial),
            revocation_time: this_update,
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update,
            next_update,
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).expect("it can be signed");
        list.pem().expect("it can be written")
    }
}

/// Returns what the certificate of an authority has.
fn params_of_authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// Returns names for a certificate. One with `:` is a URI, and the others are DNS names.
fn named(names: &[&str]) -> Vec<SanType> {
    let names = names.iter().map(|name| match name.contains(':') {
        true => SanType::URI(ascii(name)),
        false => SanType::DnsName(ascii(name)),
    });
    names.collect()
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key can be made")
}

fn ascii(name: &str) -> Ia5String {
    name.try_into().expect("the name is ASCII")
}

/// Returns the year, the month and the day that come this number of days after today.
fn in_days(days: i64) -> (i32, u8, u8) {
    let day = Zoned::now().with_time_zone(TimeZone::UTC).date() + days.days();
    let small = |part: i8| u8::try_from(part).expect("it is above 0");
    (i32::from(day.year()), small(day.month()), small(day.day()))
}
