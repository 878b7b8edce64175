//! Clients of a [`TestServer`].

use perihelion_client::{Client, Credential, Endpoint};
use perihelion_server::InProcess;

use crate::http_client::HttpRequest;
use crate::server::{Host, OWN_KEY, TestServer};

/// How a client reaches a server.
enum Address {
    InProcess(Endpoint, InProcess),
    Socket(String),
}

impl TestServer {
    /// A client that shares nothing with other clients. It signs with the
    /// emulators' key and uses no TLS. The future does not borrow the server, so
    /// that any task can run it.
    pub fn client(&self) -> impl Future<Output = Client> + Send + use<> {
        let address = match self.host() {
            Host::InProcess(embedded) => Address::InProcess(embedded.endpoint(), embedded.transport()),
            Host::Socket(_) => Address::Socket(self.url()),
        };
        async move {
            let client = match address {
                Address::InProcess(endpoint, transport) => Client::over(&endpoint, transport).await,
                Address::Socket(url) => Client::with_credential(&url, Credential::emulator()).await,
            };
            client.unwrap_or_else(|error| panic!("no client: {error}"))
        }
    }

    /// A client over TLS that trusts the server's own authority and signs with
    /// [`OWN_KEY`]. The server must be on a socket and have that key.
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
