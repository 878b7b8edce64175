//! The builder of a client: endpoint, credential, and options. A wrong setting is
//! reported by [`ClientBuilder::connect`], not by the method that sets it.

use perihelion_driver::ConnectionString;
use perihelion_driver::credential::Credential;
use perihelion_driver::transport::{AnyTransport, HttpOptions, HttpTransport};
use perihelion_driver::{Driver, DriverOptions, DriverRuntime, Region};
use perihelion_wire::transport::{Endpoint, Transport};

use super::Client;
use crate::Error;

/// Builds a [`Client`] that needs more than a connection string.
///
/// ```no_run
/// # use perihelion_client::{Client, Error};
/// # async fn example() -> Result<(), Error> {
/// let client = Client::builder()
///     .with_connection_string("AccountEndpoint=https://shop.documents.azure.com/;AccountKey=c2VjcmV0;")
///     .with_preferred_regions(["West Europe", "North Europe"])
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until connect() is called"]
pub struct ClientBuilder {
    connection_string: Option<Result<ConnectionString, Error>>,
    endpoint: Option<Result<Endpoint, Error>>,
    credential: Option<Credential>,
    transport: Option<AnyTransport>,
    runtime: Option<DriverRuntime>,
    /// `None` unless `with_preferred_regions` was called.
    preferred_regions: Option<Vec<Region>>,
    /// `None` unless `with_application_region` was called.
    application_region: Option<Region>,
    /// Certificates in PEM format, from `with_ca_pem`.
    authorities: Vec<Vec<u8>>,
    /// `None` unless `with_http` was called.
    http: Option<HttpOptions>,
    options: DriverOptions,
}

impl ClientBuilder {
    /// Sets the endpoint and the key from one text, as the portal shows it. An endpoint
    /// or a credential that is set by its own method has precedence.
    pub fn with_connection_string(mut self, text: &str) -> Self {
        self.connection_string = Some(ConnectionString::parse(text));
        self
    }

    /// Sets the account's endpoint, such as `https://shop.documents.azure.com/`.
    pub fn with_endpoint(mut self, endpoint: &str) -> Self {
        self.endpoint = Some(Endpoint::parse(endpoint).map_err(|error| Error::input(error.to_string())));
        self
    }

    /// Sets the credential: a key, a resource token, or a source of Entra ID tokens.
    pub fn with_credential(mut self, credential: Credential) -> Self {
        self.credential = Some(credential);
        self
    }

    /// Sets the regions in order of preference. They have precedence over regions in
    /// [`with_options`](ClientBuilder::with_options). Without regions the account's own order
    /// is used.
    pub fn with_preferred_regions<R: Into<Region>>(mut self, regions: impl IntoIterator<Item = R>) -> Self {
        self.preferred_regions = Some(regions.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the region of Azure in which this program runs. The account's regions are used in
    /// the order of their distance from this region. This setting cannot be combined with
    /// preferred regions.
    pub fn with_application_region(mut self, region: impl Into<Region>) -> Self {
        self.application_region = Some(region.into());
        self
    }

    /// Sets the defaults of all operations, and the options of circuit breakers and
    /// of the account's regions. The settings of the builder's other methods are kept, whether
    /// those methods are called before or after this method.
    pub fn with_options(mut self, options: DriverOptions) -> Self {
        self.options = options;
        self
    }

    /// Trusts these certificate authorities besides the system's, for example the
    /// authority of an emulator. The text is in PEM format. May be called repeatedly.
    pub fn with_ca_pem(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.authorities.push(pem.as_ref().to_vec());
        self
    }

    /// Sets the timeouts and limits of HTTP connections. The certificate authorities of
    /// [`with_ca_pem`](ClientBuilder::with_ca_pem) are kept, whether `with_ca_pem` is called
    /// before or after this method.
    pub fn with_http(mut self, options: HttpOptions) -> Self {
        self.http = Some(options);
        self
    }

    /// Uses the connections and the defaults of this runtime, which the clients of several
    /// accounts can share. Options of the connections, such as certificates, are those of the
    /// runtime: [`with_http`](ClientBuilder::with_http), [`with_ca_pem`](ClientBuilder::with_ca_pem)
    /// and [`with_transport`](ClientBuilder::with_transport) cannot be combined with a runtime. The
    /// certificate settings of a connection string have no effect: for an emulator, set
    /// `HttpOptions::with_accept_unknown_loopback_certificates` in the runtime.
    ///
    /// ```no_run
    /// # use perihelion_client::{Client, DriverOptions, DriverRuntime, Error, HttpOptions};
    /// # async fn example(orders: &str, stock: &str) -> Result<(), Error> {
    /// let runtime = DriverRuntime::new(HttpOptions::default(), DriverOptions::default())?;
    /// let orders = Client::builder().with_connection_string(orders).with_runtime(&runtime).connect().await?;
    /// let stock = Client::builder().with_connection_string(stock).with_runtime(&runtime).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_runtime(mut self, runtime: &DriverRuntime) -> Self {
        self.runtime = Some(runtime.clone());
        self
    }

    /// Sends requests through this transport instead of the client's own HTTP
    /// connections: to a database in this process, or to a simulated service.
    pub fn with_transport(mut self, transport: impl Transport + 'static) -> Self {
        self.transport = Some(AnyTransport::foreign(transport));
        self
    }

    /// The HTTP options with the certificate authorities of `with_ca_pem`.
    fn http_options(&self) -> HttpOptions {
        let http = self.http.clone().unwrap_or_default();
        self.authorities.iter().fold(http, |http, pem| http.with_ca_pem(pem))
    }

    /// The driver's options with the regions of `with_preferred_regions` and
    /// `with_application_region`.
    fn driver_options(&self) -> DriverOptions {
        let mut options = self.options.clone();
        if let Some(regions) = &self.preferred_regions {
            options = options.with_preferred_regions(regions.iter().cloned());
        }
        if let Some(region) = &self.application_region {
            options = options.with_application_region(region.clone());
        }
        options
    }

    /// Refuses settings that contradict the runtime.
    fn check_runtime(&self) -> Result<(), Error> {
        let has_own_connections =
            self.http.is_some() || !self.authorities.is_empty() || self.transport.is_some();
        match self.runtime.is_some() && has_own_connections {
            true => Err(Error::input(
                "the client has a runtime, whose connections it uses: set HTTP options, certificate authorities \
                 and the transport in DriverRuntime::new, and leave them out here",
            )),
            false => Ok(()),
        }
    }

    /// Connects: reads the account and its regions.
    pub async fn connect(self) -> Result<Client, Error> {
        self.check_runtime()?;
        let (mut http, options) = (self.http_options(), self.driver_options());
        let ClientBuilder { connection_string, endpoint, credential, transport, runtime, .. } = self;
        let connection_string = connection_string.transpose()?;
        let endpoint = match (endpoint.transpose()?, &connection_string) {
            (Some(endpoint), _) => endpoint,
            (None, Some(parsed)) => parsed.endpoint.clone(),
            (None, None) => {
                return Err(Error::input(
                    "the endpoint of the account is missing: give an endpoint or a connection string",
                ));
            }
        };
        // Any certificate of a server on this machine is accepted in two cases: the
        // emulators' key was set with `with_credential`, or the connection string allows it.
        let accepts_any_certificate = credential.as_ref().is_some_and(Credential::is_emulator)
            || connection_string.as_ref().is_some_and(|parsed| parsed.accepts_any_certificate);
        let credential = credential.or(connection_string.map(|parsed| parsed.credential));
        let credential = match (credential, &transport) {
            (Some(credential), _) => credential,
            // The caller's transport, such as that of a database in this process, needs no
            // secret key.
            (None, Some(_)) => Credential::emulator(),
            (None, None) => {
                return Err(Error::input(
                    "the credential is missing: give a credential or a connection string",
                ));
            }
        };
        if let Some(runtime) = runtime {
            return runtime.open(endpoint, credential, options).await.map(Client::from_driver);
        }
        if accepts_any_certificate {
            http = http.with_accept_unknown_loopback_certificates(true);
        }
        if credential.is_emulator() {
            // The emulators' key is published. So HTTP without TLS reveals no secret, even
            // when the emulator runs on another host.
            http = http.with_allow_cleartext(true);
        }
        let transport = match transport {
            Some(transport) => transport,
            None => HttpTransport::new(http).map_err(|error| Error::input(error.to_string()))?.into(),
        };
        Driver::open(endpoint, credential, transport, options).await.map(Client::from_driver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn connect_error(builder: ClientBuilder) -> String {
        builder.connect().await.unwrap_err().to_string()
    }

    /// With Docker Compose the emulator has an endpoint such as `http://cosmos:8081`.
    #[tokio::test]
    async fn only_the_published_key_is_sent_to_other_machines_without_tls() {
        let endpoint = Client::builder().with_endpoint("http://emulator.invalid:8081/");
        // This error shows that the client has tried to connect: the host does not exist.
        let published = connect_error(endpoint.with_credential(Credential::emulator())).await;
        assert!(published.contains("resolved"), "{published}");
        let endpoint = Client::builder().with_endpoint("http://emulator.invalid:8081/");
        let secret = connect_error(endpoint.with_credential(Credential::key("c2VjcmV0").unwrap())).await;
        assert!(secret.contains("without TLS"), "{secret}");
    }

    #[test]
    fn settings_do_not_discard_each_other() {
        let seconds = std::time::Duration::from_secs;
        let options = || DriverOptions::default().with_user_agent("shop");
        let http = || HttpOptions::default().with_connect_timeout(seconds(7));
        let general_last = Client::builder()
            .with_preferred_regions(["West US"])
            .with_ca_pem("one")
            .with_ca_pem("two")
            .with_options(options())
            .with_http(http());
        let general_first = Client::builder()
            .with_options(options())
            .with_http(http())
            .with_preferred_regions(["West US"])
            .with_ca_pem("one")
            .with_ca_pem("two");
        for builder in [general_last, general_first] {
            assert_eq!(builder.driver_options(), options().with_preferred_regions(["West US"]));
            let http = builder.http_options();
            assert_eq!((http.connect_timeout, &http.ca_pem[..]), (seconds(7), b"one\ntwo\n".as_slice()));
        }
        let nearest = Client::builder().with_application_region("West US").with_options(options());
        assert_eq!(nearest.driver_options(), options().with_application_region("West US"));
        let regions = options().with_preferred_regions(["East US"]);
        assert_eq!(Client::builder().with_options(regions.clone()).driver_options(), regions);
    }

    #[tokio::test]
    async fn connections_are_set_in_the_runtime_or_in_the_client() {
        let runtime = DriverRuntime::new(HttpOptions::default(), DriverOptions::default()).unwrap();
        let builder = || {
            Client::builder()
                .with_endpoint("https://localhost:1/")
                .with_credential(Credential::emulator())
                .with_runtime(&runtime)
        };
        for builder in [builder().with_http(HttpOptions::default()), builder().with_ca_pem("x")] {
            assert!(connect_error(builder).await.contains("DriverRuntime::new"));
        }
        // This error shows that the client has tried to connect: nothing listens at the port.
        let connecting = connect_error(builder()).await;
        assert!(connecting.contains("no connection"), "{connecting}");
    }

    #[tokio::test]
    async fn errors_name_the_wrong_setting_and_show_no_secret() {
        assert!(connect_error(Client::builder()).await.contains("endpoint"));
        let without_credential = Client::builder().with_endpoint("https://localhost:1/");
        assert!(connect_error(without_credential).await.contains("credential"));
        let bad_endpoint =
            Client::builder().with_endpoint("localhost").with_credential(Credential::emulator());
        assert!(connect_error(bad_endpoint).await.contains("https://"));
        let text = "AccountEndpoint=https://localhost/;AccountKey=not base64 secret;";
        let bad_key = connect_error(Client::builder().with_connection_string(text)).await;
        assert!(bad_key.contains("AccountKey") && !bad_key.contains("secret"), "{bad_key}");
        let bad_authority = Client::builder()
            .with_endpoint("https://localhost:1/")
            .with_credential(Credential::emulator())
            .with_ca_pem("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----");
        assert!(bad_authority.connect().await.is_err());
    }
}
