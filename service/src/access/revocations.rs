//! Checks that each authority of callers has one list of revoked certificates that counts.

use rustls::pki_types::{
    CertificateRevocationListDer, SignatureVerificationAlgorithm, TrustAnchor,
};
use webpki::{BorrowedCertRevocationList, CertRevocationList};

/// A list of revoked certificates, whose form is right.
struct RevocationList<'a> {
    parsed: CertRevocationList<'a>,
    der: &'a [u8],
}

/// The first element of a text in DER.
struct Element<'a> {
    /// The element, with its tag and its length.
    whole: &'a [u8],
    content: &'a [u8],
    /// What comes after the element.
    rest: &'a [u8],
}

/// Says what is wrong with the lists of revoked certificates; `None` if they can be used.
///
/// webpki takes the first list of an issuer, and looks at its signature only when it looks up a
/// certificate. So a second list would be ignored without a word. Without a list that it signed, an
/// authority would see all its certificates refused.
///
/// `authorities` are in the order of `tls.clients_ca_file`. `algorithms` are those by which
/// certificates may be signed.
pub(super) fn problem(
    lists: &[CertificateRevocationListDer<'_>],
    authorities: &[TrustAnchor<'_>],
    algorithms: &[&dyn SignatureVerificationAlgorithm],
) -> Option<String> {
    let mut read = Vec::new();
    for (n, der) in (1..).zip(lists) {
        match BorrowedCertRevocationList::from_der(der) {
            Ok(parsed) => read.push(RevocationList {
                parsed: parsed.into(),
                der,
            }),
            Err(error) => return Some(format!("list {n} cannot be used: {error}")),
        }
    }
    let mut lists = read.iter().enumerate();
    let hidden = lists.find_map(|(n_before, list)| {
        let mut before = read.iter().take(n_before);
        let first = before.position(|other| other.overlaps(list))?;
        Some((first + 1, n_before + 1))
    });
    if let Some((first, second)) = hidden {
        return Some(format!(
            "lists {first} and {second} are of the same issuer, and only the first one would count; \
             give one list of each authority, the newest"
        ));
    }
    let mut authorities = (1..).zip(authorities);
    let (n, _) = authorities.find(|(_, authority)| {
        let mut lists = read.iter();
        !lists.any(|list| list.is_of(authority, algorithms))
    })?;
    Some(format!(
        "it has no list that the authority of certificate {n} in tls.clients_ca_file signed, so all \
         certificates of that authority would be refused; add its list"
    ))
}

impl RevocationList<'_> {
    /// Returns whether the two lists may be about the same certificates, so that only the first of
    /// them counts. A list without a distribution point is about all certificates of its issuer.
    fn overlaps(&self, other: &Self) -> bool {
        let points = [self, other].map(|list| list.parsed.issuing_distribution_point());
        let is_about_others = matches!(points, [Some(one), Some(another)] if one != another);
        self.parsed.issuer() == other.parsed.issuer() && !is_about_others
    }

    /// Returns whether the list has the name of an authority, and was signed with its key.
    fn is_of(
        &self,
        authority: &TrustAnchor<'_>,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> bool {
        let key = &*authority.subject_public_key_info;
        self.parsed.issuer() == &*authority.subject
            && is_signed(self.der, key, algorithms).unwrap_or_default()
    }
}

/// Returns whether a list was signed with a key; `None` if one of them is no DER.
///
/// A list is a sequence of the signed part, the algorithm and the signature (RFC 5280, section 5.1).
/// A key is the algorithm and its bits (section 4.1).
fn is_signed(
    list: &[u8],
    key: &[u8],
    algorithms: &[&dyn SignatureVerificationAlgorithm],
) -> Option<bool> {
    let signed = first_of(first_of(list)?.content)?;
    let by = first_of(signed.rest)?;
    let signature = bits(by.rest)?;
    let of_key = first_of(key)?;
    let key = bits(of_key.rest)?;
    let mut fitting = algorithms.iter().filter(|algorithm| {
        let (signs, is_for) = (algorithm.signature_alg_id(), algorithm.public_key_alg_id());
        &*signs == by.content && &*is_for == of_key.content
    });
    Some(fitting.any(|algorithm| {
        let checked = algorithm.verify_signature(key, signed.whole, signature);
        checked.is_ok()
    }))
}

/// Reads the first element of a text in DER: a tag, a length and the content. The length has one
/// byte, or as many further bytes as that byte says (X.690, section 8.1.3).
fn first_of(der: &[u8]) -> Option<Element<'_>> {
    let (first, mut rest) = der.get(1..)?.split_first()?;
    let mut length = usize::from(first & 0x7f);
    if first & 0x80 != 0 {
        let (further, after) = rest.split_at_checked(length)?;
        let mut bytes = further.iter();
        length = bytes.try_fold(0_usize, |length, byte| {
            length.checked_mul(256)?.checked_add(usize::from(*byte))
        })?;
        rest = after;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    let (whole, rest) = der.split_at_checked(der.len().checked_sub(rest.len())?)?;
    Some(Element {
        whole,
        content,
        rest,
    })
}

/// Reads a string of whole bytes, which begins with the number of bits that are left out: none.
fn bits(der: &[u8]) -> Option<&[u8]> {
    let (n_left_out, bits) = first_of(der)?.content.split_first()?;
    (*n_left_out == 0).then_some(bits)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use odometer_tests::TestAuthority;
    use rustls::RootCertStore;
    use rustls::crypto::ring;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    /// Checks lists, all as PEM. Returns an empty text if nothing is wrong.
    fn said(lists: &[&str], authorities: &[&TestAuthority]) -> String {
        let lists = lists
            .iter()
            .map(|list| CertificateRevocationListDer::from_pem_slice(list.as_bytes()).unwrap());
        let lists: Vec<_> = lists.collect();
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            let pem = authority.certificate();
            let certificate = CertificateDer::from_pem_slice(pem.as_bytes());
            roots.add(certificate.unwrap()).unwrap();
        }
        let algorithms = ring::default_provider().signature_verification_algorithms;
        problem(&lists, &roots.roots, algorithms.all).unwrap_or_default()
    }

    #[test]
    fn each_authority_needs_a_list_that_it_signed() {
        let (a, b) = (TestAuthority::new("a"), TestAuthority::new("b"));
        let of_same_name = TestAuthority::new("a");
        let between = a.intermediate("between");
        let lists = [&a, &b, &of_same_name, &between].map(|it| it.revocations(&[]));
        let [of_a, of_b, forged, of_between] = lists.each_ref().map(String::as_str);
        assert_eq!(said(&[of_a], &[&a]), "");
        assert_eq!(said(&[of_b, of_a], &[&a, &b]), "");
        assert_eq!(said(&[of_between, of_a], &[&a]), "");
        for (lists, authorities, n) in [
            (&[of_b][..], &[&a][..], 1),
            (&[of_between], &[&a], 1),
            (&[forged], &[&a], 1),
            (&[of_a], &[&a, &b], 2),
            (&[of_a], &[&a, &of_same_name], 2),
        ] {
            let said = said(lists, authorities);
            let named = format!("no list that the authority of certificate {n} in ");
            assert!(said.contains(&named), "{said}");
        }
    }

    #[test]
    fn two_lists_of_one_issuer_are_refused_in_both_orders() {
        let (a, b) = (TestAuthority::new("a"), TestAuthority::new("b"));
        let revoked = a.sign(&["spiffe://corp/a"]);
        let (old, new) = (a.revocations(&[]), a.revocations(&[&revoked]));
        let of_b = b.revocations(&[]);
        for (lists, numbers) in [
            ([&old, &of_b, &new], "1 and 3"),
            ([&new, &of_b, &old], "1 and 3"),
            ([&of_b, &old, &new], "2 and 3"),
            ([&old, &old, &of_b], "1 and 2"),
        ] {
            let said = said(&lists.map(String::as_str), &[&a, &b]);
            assert!(said.contains(&format!("lists {numbers} are ")), "{said}");
        }
    }

    #[test]
    fn what_is_no_der_is_signed_by_nobody() {
        for broken in [&b""[..], &[48], &[48, 1], &[48, 0x82, 1], &[48, 0xff, 1]] {
            assert!(first_of(broken).is_none(), "{broken:?}");
            assert!(is_signed(broken, broken, &[]).is_none(), "{broken:?}");
        }
        let long = [&[4_u8, 0x82, 1, 0][..], &[7; 256], &[1]].concat();
        let element = first_of(&long).unwrap();
        assert_eq!((element.content.len(), element.whole.len()), (256, 260));
        assert_eq!(element.rest, [1]);
    }
}
