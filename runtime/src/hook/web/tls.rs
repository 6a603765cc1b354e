//! TLS to webhooks: the authorities that are trusted, and what is wrong with a server that is not.

use std::io;
use std::sync::Arc;

use metahook_core::hash::{Fingerprint, Fingerprinter};
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};

/// The protocols that are offered; the server chooses.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Certificates that a webhook is trusted by, and the identity that it trusts us by.
#[derive(Clone, Default)]
pub(super) struct TlsSettings {
    /// Certificates of authorities that are trusted in place of the system's.
    pub(super) authorities: Option<Vec<CertificateDer<'static>>>,
    pub(super) identity: Option<Arc<Identity>>,
}

/// Our certificate, with those that it follows from, and its key.
pub(super) struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl TlsSettings {
    /// Equal settings share their connections.
    pub(super) fn digest(&self) -> Fingerprint {
        let mut digest = Fingerprinter::default();
        let mut list = |certificates: &[CertificateDer<'_>]| {
            digest.add(&certificates.len().to_le_bytes());
            for certificate in certificates {
                digest.add(certificate);
            }
        };
        list(self.authorities.as_deref().unwrap_or_default());
        list(self.identity.as_ref().map_or(&[], |identity| &identity.chain));
        digest.add(self.identity.as_ref().map_or(&[], |identity| identity.key.secret_der()));
        digest.finish()
    }

    /// Without authorities those of the system are trusted; where it has none, as a container image may, the public ones that
    /// are built in.
    ///
    /// # Errors
    /// No authority can be used, or certificate and key make no pair.
    pub(super) fn config(&self, system: &[CertificateDer<'static>]) -> Result<ClientConfig, Error> {
        let mut trusted = RootCertStore::empty();
        let given = self.authorities.as_deref();
        trusted.add_parsable_certificates(given.unwrap_or(system).iter().cloned());
        if given.is_none() && trusted.is_empty() {
            trusted.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        let provider = Arc::new(ring::default_provider());
        let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(trusted), Arc::clone(&provider));
        let chains = chains.build().map_err(|error| Error::General(error.to_string()))?;
        let verifier = Verifier { chains, bundle: given.unwrap_or_default().to_vec() };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &self.identity {
            None => config.with_no_client_auth(),
            Some(identity) => {
                config.with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())?
            }
        };
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        Ok(config)
    }
}

/// Certificates that can be used; there is one at least.
pub(super) fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect();
    (!all.is_empty()).then_some(all)
}

/// Verifies certificates by the usual checks, but a certificate that is itself in the bundle may be one of an authority:
/// `openssl req -x509` makes such certificates, and clients written in Go accept them.
#[derive(Debug)]
struct Verifier {
    chains: Arc<WebPkiServerVerifier>,
    bundle: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.chains.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // Its dates are checked before that.
            Err(Error::InvalidCertificate(problem))
                if is_authority(&problem) && self.bundle.iter().any(|one| **one == **certificate) =>
            {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// A handshake that failed, in words about the check that did.
#[derive(Debug, thiserror::Error)]
#[error("TLS with {host}: {why}")]
pub(super) struct TlsError {
    host: String,
    why: String,
}

impl TlsError {
    pub(super) fn new(host: &str, error: &io::Error) -> Self {
        let known = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        let why = known.and_then(explain).unwrap_or_else(|| error.to_string());
        Self { host: host.to_owned(), why }
    }
}

fn explain(error: &Error) -> Option<String> {
    let certificate = match error {
        Error::InvalidCertificate(problem) => problem,
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            return Some("the server wants a certificate of its client".to_owned());
        }
        _ => return None,
    };
    let why = match certificate {
        CertificateError::UnknownIssuer => "is signed by no authority that is trusted",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "is for other names than this host's"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "is not valid yet",
        CertificateError::BadSignature => "has a wrong signature",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not one for servers"
        }
        other if is_authority(other) => {
            "is one of an authority, which signs and does not serve: put it itself into caBundle"
        }
        other => return Some(format!("its certificate is refused: {other}")),
    };
    Some(format!("its certificate {why} ({certificate})"))
}

/// The check that a server's certificate is none of an authority.
fn is_authority(problem: &CertificateError) -> bool {
    let CertificateError::Other(problem) = problem else { return false };
    matches!(problem.0.downcast_ref::<webpki::Error>(), Some(webpki::Error::CaUsedAsEndEntity))
}
