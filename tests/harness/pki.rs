//! An authority that lives as long as a control plane or a webhook, and the certificates it signs.

use std::sync::Arc;

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub(crate) struct Authority {
    certificate: String,
    /// The secret that tokens are signed with.
    secret: String,
    issuer: Issuer<'static, KeyPair>,
}

/// In PEM.
pub(crate) struct Certified {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "metahook-test-ca");
        let key = KeyPair::generate()?;
        let (certificate, secret) = (params.self_signed(&key)?.pem(), key.serialize_pem());
        Ok(Self { certificate, secret, issuer: Issuer::new(params, key) })
    }

    /// The token of a user; another one in each control plane, for any process of the machine may reach its loopback.
    pub(crate) fn token(&self, user: &str) -> String {
        image::hex(format!("{user} {}", self.secret).as_bytes())
    }

    /// Its own certificate, in PEM.
    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// For who serves under these names and addresses.
    pub(crate) fn server(&self, common_name: &str, names: &[&str]) -> Result<Certified> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.sign(CertificateParams::new(names)?, common_name)
    }

    /// For a user in a group.
    pub(crate) fn client(&self, user: &str, group: &str) -> Result<Certified> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::OrganizationName, group);
        self.sign(params, user)
    }

    fn sign(&self, mut params: CertificateParams, common_name: &str) -> Result<Certified> {
        params.distinguished_name.push(DnType::CommonName, common_name);
        let key = KeyPair::generate()?;
        Ok(Certified { certificate: params.signed_by(&key, &self.issuer)?.pem(), key: key.serialize_pem() })
    }
}

impl Certified {
    /// Serves with it.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor> {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())?;
        let config =
            ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key)?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
