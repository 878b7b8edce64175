//! Entra ID instead of a key: a credential made from a token source.
//!
//! With the feature `azure-core`, a credential of `azure_identity` is a token source.
//! This example has its own token source. The database in this process accepts any
//! token.
//!
//! `cargo run -p perihelion-client --example entra_id`

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use perihelion_client::credential::{AccessToken, TokenFuture, TokenSource};
use perihelion_client::{Client, Credential};
use perihelion_server::{AuthMode, Embedded, EmbeddedOptions, Keys, MasterKey};

/// Stands in for the platform's identity service: its token is made up.
struct Identity;

impl TokenSource for Identity {
    fn token<'a>(&'a self, scope: &'a str) -> TokenFuture<'a> {
        Box::pin(async move {
            println!("requested a token for {scope}");
            // A real token comes from the platform and is renewed before it expires.
            Ok(AccessToken::new("header.payload.signature", SystemTime::now() + Duration::from_secs(3600)))
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let credential = Credential::token_source(Arc::new(Identity));
    if let Ok(endpoint) = std::env::var("COSMOS_ENDPOINT") {
        // A real account refuses the token of `Identity`. Replace it by a token of your
        // tenant.
        let client = Client::with_credential(&endpoint, credential).await?;
        println!("regions: {:?}", client.account().read_regions);
        return Ok(());
    }
    let keys = Keys { primary: MasterKey::emulator() };
    let embedded = Embedded::open(EmbeddedOptions::default().with_auth(AuthMode::Any, keys)).await?;
    let client = Client::builder()
        .with_endpoint(&embedded.endpoint().to_string())
        .with_credential(credential)
        .with_transport(embedded.transport())
        .connect()
        .await?;
    let shop = client.create_database("shop").await?;
    println!("database {} is {}", shop.name(), shop.read().await?.resource_id);
    drop((shop, client));
    embedded.close().await;
    Ok(())
}
