//! A driver runtime: drivers that share a transport and defaults.

use std::sync::Arc;

use perihelion_driver::operation::Verb;
use perihelion_driver::transport::{AnyTransport, HttpOptions};
use perihelion_driver::{Credential, DriverOptions, DriverRuntime, OperationOptions};
use perihelion_wire::transport::Endpoint;

use crate::request_headers::{Recording, text};
use crate::world::World;

fn with_header(value: &str) -> DriverOptions {
    let operation = OperationOptions::default().with_header("x-layer", value).unwrap();
    DriverOptions::default().with_operation(operation)
}

#[tokio::test]
async fn drivers_of_a_runtime_share_its_transport_and_take_its_defaults() {
    let world = World::new().await;
    let sent = Arc::default();
    let recording = Recording { inner: world.server.transport(), sent: Arc::clone(&sent) };
    let runtime = DriverRuntime::over(AnyTransport::foreign(recording), with_header("runtime")).unwrap();
    let open = |options| runtime.open(world.server.endpoint(), Credential::emulator(), options);
    let (first, second) =
        (open(DriverOptions::default()).await.unwrap(), open(with_header("driver")).await.unwrap());
    sent.lock().unwrap().clear();
    let default_options = OperationOptions::default();
    let own_options = default_options.clone().with_header("x-layer", "operation").unwrap();
    let write = world.write(Verb::Upsert, "1", "a");
    for (driver, options) in
        [(&first, &default_options), (&second, &default_options), (&second, &own_options)]
    {
        driver.execute(&write, options).await.unwrap();
    }
    let sent = sent.lock().unwrap();
    let layers: Vec<_> = sent
        .iter()
        .filter(|(path, _)| path.contains("/docs"))
        .map(|(_, headers)| text(headers, "x-layer").unwrap())
        .collect();
    assert_eq!(layers, ["runtime", "driver", "operation"]);
}

#[tokio::test]
async fn bad_defaults_of_a_runtime_are_refused_at_once() {
    let http = HttpOptions::default;
    let backup =
        DriverOptions::default().with_backup_endpoints([Endpoint::parse("https://backup.example").unwrap()]);
    for (options, expected_part) in
        [(DriverOptions::default().with_application_region("Mars"), "Mars"), (backup, "one account")]
    {
        let error = DriverRuntime::new(http(), options).unwrap_err().to_string();
        assert!(error.contains(expected_part), "{error}");
    }
    let error = DriverRuntime::new(http().with_ca_pem("x"), DriverOptions::default()).unwrap_err();
    assert!(error.to_string().contains("CA"), "{error}");
}
