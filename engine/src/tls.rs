//! TLS between the socket and everything else: ciphertext in, plaintext out, and back. No I/O; rustls implements the
//! protocol. Every connection does a full handshake, because a resumed session would hide the cost of a new client.

use crate::failure::{Failure, Kind};
use crate::plan::{Plan, Tls as Wanted};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::io::{Read, Write};
use std::sync::Arc;

/// The part that all connections of a plan share.
#[derive(Clone)]
pub struct Client {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Client {
    /// `None` if the plan uses no TLS; an error is this host's or the plan's, in one line.
    pub fn new(plan: &Plan) -> Result<Option<Client>, String> {
        let Some(wanted) = &plan.tls else { return Ok(None) };
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("`tls`: {error}"))?;
        let chains = if wanted.verify { Some(Chains::of(roots(wanted)?, provider.clone())?) } else { None };
        let verifier = Arc::new(Verifier { provider, chains });
        let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        config.resumption = Resumption::disabled();
        let host = host_of(&plan.target.host);
        let name = ServerName::try_from(host.to_string())
            .map_err(|error| format!("`target.host` is {host:?}, which no certificate can name: {error}"))?;
        Ok(Some(Client { config: Arc::new(config), name }))
    }

    pub fn session(&self) -> Session {
        let connection = ClientConnection::new(self.config.clone(), self.name.clone());
        let mut connection = connection.expect("the configuration and the name were checked");
        // The connection that sends these bytes sends or keeps them at once.
        connection.set_buffer_limit(None);
        Session(connection)
    }
}

/// The certificates that are trusted: those of the user's file, or of this host.
fn roots(wanted: &Wanted) -> Result<Vec<CertificateDer<'static>>, String> {
    let Some(path) = &wanted.ca else {
        let found = rustls_native_certs::load_native_certs().certs;
        let none = "this host has no root certificates: install ca-certificates, or name a file in `tls.ca`";
        return if found.is_empty() { Err(none.into()) } else { Ok(found) };
    };
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| format!("`tls.ca` is {path:?}: {error}"))?;
    if found.is_empty() { Err(format!("`tls.ca` is {path:?}, which holds no certificate")) } else { Ok(found) }
}

/// Without the port; an IPv6 address without its brackets.
fn host_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.split(':').next().unwrap_or(host),
    }
}

/// The largest content of a record (RFC 8446 §5.1).
const RECORD_BYTES: usize = 1 << 14;

/// How plaintext was sealed: after this many bytes of the session's own, in records that are full except for the last.
pub struct Records {
    own: usize,
    plain: usize,
    overhead: usize,
}

impl Records {
    /// The end of the record with the last of this many bytes of plaintext. Before that no peer can read it.
    pub fn end_of(&self, plain: usize) -> usize {
        let records = plain.div_ceil(RECORD_BYTES);
        self.own + (records * RECORD_BYTES).min(self.plain) + records * self.overhead
    }
}

pub struct Session(ClientConnection);

impl Session {
    pub fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// The last record that is sealed (RFC 8446 §6.1).
    pub fn end(&mut self) {
        self.0.send_close_notify();
    }

    /// Replaces plaintext by the records that carry it, after any records of the session itself.
    pub fn seal(&mut self, out: &mut Vec<u8>) -> Records {
        let mut own = Vec::new();
        self.write(&mut own);
        self.0.writer().write_all(out).expect("the buffer has no limit");
        let plain = out.len();
        out.clear();
        out.extend_from_slice(&own);
        self.write(out);
        let count = plain.div_ceil(RECORD_BYTES).max(1);
        Records { own: own.len(), plain, overhead: (out.len() - own.len() - plain) / count }
    }

    fn write(&mut self, out: &mut Vec<u8>) {
        while self.0.wants_write() {
            self.0.write_tls(out).expect("a vector takes everything");
        }
    }

    /// Appends the plaintext that these bytes complete: also that of the records before one that is wrong.
    pub fn open(&mut self, mut sealed: &[u8], plain: &mut Vec<u8>) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::new(Kind::Tls, error.to_string());
        while !sealed.is_empty() {
            let taken = self.0.read_tls(&mut sealed).map_err(failed)?;
            if taken == 0 {
                // The peer has closed its side of TLS; later data is ignored (RFC 8446 §6.1).
                return Ok(());
            }
            match self.0.process_new_packets() {
                Ok(state) => {
                    let start = plain.len();
                    plain.resize(start + state.plaintext_bytes_to_read(), 0);
                    self.0.reader().read_exact(&mut plain[start..]).map_err(failed)?;
                }
                Err(error) => {
                    // It ends by blocking.
                    let _ = self.0.reader().read_to_end(plain);
                    return Err(Failure::new(Kind::Tls, error.to_string()));
                }
            }
        }
        Ok(())
    }
}

/// Accepts the certificates that `chains` accepts. Without them all: the plan's explicit opt-out.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    chains: Option<Chains>,
}

/// Chains that end at a trusted certificate. A trusted certificate is also accepted as the server's own, as other clients do: the
/// usual self-signed one may sign others, for which webpki refuses it (`CaUsedAsEndEntity`).
#[derive(Debug)]
struct Chains {
    trusted: Vec<CertificateDer<'static>>,
    webpki: Arc<WebPkiServerVerifier>,
}

impl Chains {
    fn of(trusted: Vec<CertificateDer<'static>>, provider: Arc<CryptoProvider>) -> Result<Chains, String> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Ok(Chains {
            trusted,
            webpki: webpki.map_err(|error| format!("`tls`: no certificate can be trusted: {error}"))?,
        })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(Chains { trusted, webpki }) = &self.chains else { return Ok(ServerCertVerified::assertion()) };
        match webpki.verify_server_cert(own, between, name, ocsp, now) {
            // Its dates were looked at before this.
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(_)))
                if trusted.iter().any(|one| one == own) =>
            {
                verify_server_name(&ParsedCertificate::try_from(own)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            said => said,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
