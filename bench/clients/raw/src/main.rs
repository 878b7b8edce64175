//! The floor of the comparison: one HTTP/2 connection of `hyper` over TLS, a signature per
//! request, and the headers that a point operation needs. There are no retries, routing,
//! sessions or diagnostics. So the figures show what the bytes on the wire cost.

#[path = "../../../src/load/sign.rs"]
mod sign;

use std::process::ExitCode;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use perihelion_bench_client::{Arguments, CA_VARIABLE, Client, Document, KEY, NewDocument, Problem};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sign::Signer;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const VERSION: HeaderValue = HeaderValue::from_static("2020-07-15");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Asks the server not to return the created document.
const MINIMAL: HeaderValue = HeaderValue::from_static("return=minimal");

fn main() -> ExitCode {
    perihelion_bench_client::main(connect)
}

async fn connect(arguments: Arguments) -> Result<Raw, Problem> {
    let endpoint: Uri = arguments.endpoint.parse()?;
    let authority = endpoint.authority().ok_or("an endpoint without a host")?.clone();
    let host = ServerName::try_from(authority.host().to_owned())?;
    let stream = TcpStream::connect(authority.as_str()).await?;
    stream.set_nodelay(true)?;
    let stream = TlsConnector::from(Arc::new(tls_config()?)).connect(host, stream).await?;
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            eprintln!("the connection ended: {error}");
        }
    });
    let link = format!("dbs/{}/colls/{}", arguments.database, arguments.container);
    let container = Container { prefix: format!("https://{authority}/"), link };
    Ok(Raw { sender, signer: Signer::new(KEY)?, container: Arc::new(container) })
}

/// The configuration of TLS, with the CA in the file that [`CA_VARIABLE`] names.
fn tls_config() -> Result<ClientConfig, Problem> {
    let file = std::env::var_os(CA_VARIABLE).ok_or(format!("{CA_VARIABLE} names no file"))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file)? {
        roots.add(certificate?)?;
    }
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

struct Container {
    /// `https://host:port/`
    prefix: String,
    /// `dbs/…/colls/…`
    link: String,
}

#[derive(Clone)]
struct Raw {
    sender: SendRequest<Full<Bytes>>,
    signer: Signer,
    container: Arc<Container>,
}

impl Raw {
    /// A request with the headers of every operation on documents.
    fn request(
        &mut self,
        method: Method,
        path: &str,
        link: &str,
        key: &str,
    ) -> Result<http::request::Builder, Problem> {
        let verb = if method == Method::GET { "get" } else { "post" };
        let signature = self.signer.sign(verb, "docs", link)?;
        Ok(Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.container.prefix))
            .header("authorization", signature.authorization)
            .header("x-ms-date", signature.date)
            .header("x-ms-version", VERSION)
            .header("x-ms-documentdb-partitionkey", format!("[\"{key}\"]")))
    }

    /// Sends a request and returns the body of the answer, which must have this status.
    async fn send(&mut self, request: Request<Full<Bytes>>, expected: StatusCode) -> Result<Bytes, Problem> {
        self.sender.ready().await?;
        let response: Response<Incoming> = self.sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if status != expected {
            return Err(format!("answered {status}: {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(body)
    }
}

impl Client for Raw {
    async fn read(&mut self, key: &str, id: &str) -> Result<Document, Problem> {
        let link = format!("{}/docs/{id}", self.container.link);
        let request = self.request(Method::GET, &link, &link, key)?.body(Full::default())?;
        let body = self.send(request, StatusCode::OK).await?;
        Ok(serde_json::from_slice(&body)?)
    }

    async fn create(&mut self, document: &NewDocument<'_>) -> Result<(), Problem> {
        let container = Arc::clone(&self.container);
        let path = format!("{}/docs", container.link);
        let body = Full::from(serde_json::to_vec(document)?);
        let request = self
            .request(Method::POST, &path, &container.link, document.pk)?
            .header("content-type", JSON)
            .header("prefer", MINIMAL)
            .body(body)?;
        self.send(request, StatusCode::CREATED).await?;
        Ok(())
    }
}
