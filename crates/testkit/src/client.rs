//! Clients of a [`TestServer`].

use perihelion_client::{Client, Credential};

use crate::http_client::HttpRequest;
use crate::server::{Host, OWN_KEY, TestServer};

impl TestServer {
    /// A client that shares nothing with other clients. It signs with the
    /// emulators' key and uses no TLS.
    pub async fn client(&self) -> Client {
        let client = match self.host() {
            Host::InProcess(embedded) => Client::over(&embedded.endpoint(), embedded.transport()).await,
            Host::Socket(_) => Client::with_credential(&self.url(), Credential::emulator()).await,
        };
        client.unwrap_or_else(|error| panic!("no client: {error}"))
    }

    /// A client over TLS that trusts the server's own authority and signs with
    /// [`OWN_KEY`].
    pub async fn tls_client(&self) -> Client {
        let request = HttpRequest::new("GET", "/_explorer/emulator.pem");
        let authority = self.http_client().send(&request).await;
        let authority = authority.unwrap_or_else(|error| panic!("no certificate: {error}")).body;
        let client = Client::builder()
            .with_endpoint(&format!("https://{}", self.address()))
            .with_credential(Credential::key(OWN_KEY).expect("the key is base64"))
            .with_ca_pem(&authority)
            .connect();
        client.await.unwrap_or_else(|error| panic!("no client: {error}"))
    }
}
