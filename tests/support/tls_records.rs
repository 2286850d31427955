//! Writes records of TLS 1.3 that no library would send.

use std::io;
use std::sync::Arc;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, RootCertStore,
    SupportedProtocolVersion, crypto::ring as provider,
};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::{HOST, TestAuthority, TlsCaller};

/// The type of a record with a message of a handshake, and that of every record that is encrypted
/// (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

/// The most bytes that a record carries.
const MAX_RECORD: usize = 16 * 1024;

/// The types of messages of a handshake (RFC 8446, section 4).
const CLIENT_HELLO: u8 = 1;
const CERTIFICATE: u8 = 11;
const KEY_UPDATE: u8 = 24;

/// A connection by TLS 1.3 whose handshake is done.
pub struct RecordConnection {
    stream: TcpStream,
    key: LessSafeKey,
    iv: [u8; 12],
    n_sent: u64,
}

impl RecordConnection {
    /// Opens a connection to `address`, a `host:port`.
    ///
    /// # Panics
    /// If the handshake fails.
    pub async fn open(address: &str, authority: &TestAuthority) -> Self {
        let caller = TlsCaller::by(authority, None, &[&rustls::version::TLS13]);
        let opened = caller.with_open_keys().connect(address).await;
        let opened = opened.expect("the handshake is done");
        let (stream, session) = opened.into_stream().into_inner();
        let secrets = session.dangerous_extract_secrets();
        let (n_sent, secrets) = secrets.expect("it is allowed").tx;
        let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else {
            panic!("another suite was agreed on");
        };
        let key = UnboundKey::new(&AES_256_GCM, key.as_ref()).expect("a key of 32 bytes");
        Self {
            stream,
            key: LessSafeKey::new(key),
            iv: iv.as_ref().try_into().expect("12 bytes"),
            n_sent,
        }
    }

    /// Sends `n` bytes of a message of a handshake that never ends.
    ///
    /// # Errors
    /// The other side has closed the connection.
    pub async fn send_part_of_message(&mut self, n: usize) -> io::Result<()> {
        for part in part_of_message(KEY_UPDATE, n).chunks(MAX_RECORD - 1024) {
            let record = self.encrypted(part);
            self.stream.write_all(&record).await?;
        }
        Ok(())
    }

    /// Returns a record with a part of a message, as RFC 8446 has it in section 5.2.
    fn encrypted(&mut self, part: &[u8]) -> Vec<u8> {
        let mut content = part.to_vec();
        content.push(HANDSHAKE);
        let mut record = header(APPLICATION_DATA, content.len() + AES_256_GCM.tag_len());
        let mut nonce = self.iv;
        // The number of the record stands at the end of the nonce, the highest byte first.
        for (byte, of_number) in nonce.iter_mut().rev().zip(self.n_sent.to_le_bytes()) {
            *byte ^= of_number;
        }
        self.n_sent += 1;
        let (nonce, header) = (
            Nonce::assume_unique_for_key(nonce),
            Aad::from(record.clone()),
        );
        self.key
            .seal_in_place_append_tag(nonce, header, &mut content)
            .expect("it is short enough");
        record.extend(content);
        record
    }
}

/// Returns `n` bytes of a first message that never ends, in records that are not encrypted.
pub fn part_of_hello(n: usize) -> Vec<u8> {
    in_records(&part_of_message(CLIENT_HELLO, n))
}

/// Returns `n` bytes of certificates that never end, as TLS 1.2 has them: in records that are not
/// encrypted.
pub fn part_of_certificates(n: usize) -> Vec<u8> {
    in_records(&part_of_message(CERTIFICATE, n))
}

/// Returns a whole first message of this version, in records that are not encrypted. It offers the
/// protocols `alpn`.
pub fn hello(version: &'static SupportedProtocolVersion, alpn: Vec<Vec<u8>>) -> Vec<u8> {
    let config = ClientConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_protocol_versions(&[version])
        .expect("the version is known");
    let mut config = config
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = alpn;
    let host = HOST.try_into().expect("the name of a host");
    let mut caller = ClientConnection::new(Arc::new(config), host).expect("it can be used");
    let mut hello = Vec::new();
    caller.write_tls(&mut hello).expect("there is room");
    hello
}

fn in_records(message: &[u8]) -> Vec<u8> {
    let records = message.chunks(MAX_RECORD).map(|part| {
        let mut record = header(HANDSHAKE, part.len());
        record.extend(part);
        record
    });
    records.flatten().collect()
}

/// Returns `n` bytes of a message, as which 65,535 are announced.
fn part_of_message(kind: u8, n: usize) -> Vec<u8> {
    let mut message = vec![kind, 0, 0xff, 0xff];
    message.resize(n, 0);
    message
}

fn header(kind: u8, length: usize) -> Vec<u8> {
    let length = u16::try_from(length).expect("a record is short");
    let [high, low] = length.to_be_bytes();
    vec![kind, 3, 3, high, low]
}
