//! Which certificates a client accepts from a server on this machine.

use perihelion_client::{Client, ErrorKind};
use perihelion_server::{EMULATOR_KEY, ServerOptions};
use perihelion_testkit::TestServer;

/// With the emulators' key the client accepts any certificate of a server on this
/// machine, unless the connection string forbids it.
#[tokio::test]
async fn a_connection_string_with_the_emulators_key_can_demand_a_verified_certificate() {
    let server = TestServer::on_socket(ServerOptions { management: true, ..ServerOptions::default() }).await;
    let text = format!("AccountEndpoint=https://{}/;AccountKey={EMULATOR_KEY};", server.address());
    let connect = async |text: String| Client::builder().with_connection_string(&text).connect().await;
    assert!(connect(text.clone()).await.is_ok());
    let with_validation = format!("{text}DisableServerCertificateValidation=False;");
    let refused = connect(with_validation).await.expect_err("the certificate is not trusted");
    assert_eq!(refused.kind(), ErrorKind::Transport, "{refused}");
    server.stop().await;
}
