//! `Browser`: a small HTTP client that behaves like a browser as far as the dashboard can tell: it
//! sends the host, the origin, and headers that a test adds, such as a cookie.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The longest wait for a page. A page that takes longer has hung.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(crate) struct Browser {
    address: SocketAddr,
    /// The headers of every request: host, origin, and those that a test adds or replaces.
    pub(crate) headers: Vec<(&'static str, String)>,
}

#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Page {
    /// Panics unless the page has all these texts.
    pub(crate) fn has(&self, texts: &[&str]) -> &Page {
        for text in texts {
            assert!(self.text.contains(text), "{text:?} is missing in {} {}", self.status, self.text);
        }
        self
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The value of an attribute of the first element that contains `mark`.
    pub(crate) fn attribute(&self, mark: &str, name: &str) -> Option<String> {
        let begin = self.text[..self.text.find(mark)?].rfind('<')?;
        let element = &self.text[begin..];
        let element = &element[..element.find('>')?];
        let value = element.split(&format!("{name}=\"")).nth(1)?;
        Some(unescaped(value.split('"').next()?))
    }

    /// The hidden fields of the form that sends this action, as a browser sends them, without the
    /// form token.
    pub(crate) fn hidden_fields(&self, action: &str) -> Vec<(String, String)> {
        let mark = format!("name=\"action\" value=\"{action}\"");
        let begin = self.text.find(&mark).and_then(|at| self.text[..at].rfind("<form")).expect("the form");
        let form = &self.text[begin..];
        let form = &form[..form.find("</form>").expect("the end of the form")];
        let inputs = form.split("<input type=\"hidden\" name=\"").skip(1);
        let fields = inputs.map(|input| {
            let mut parts = input.split('"');
            let name = parts.next().expect("a name").to_owned();
            (name, unescaped(parts.nth(1).expect("a value")))
        });
        fields.filter(|(name, _)| name != "form").collect()
    }

    /// The text in the first text area.
    pub(crate) fn text_area(&self) -> String {
        let area = self.text.split("<textarea").nth(1).expect("a text area");
        let area =
            area.split_once('>').and_then(|(_, rest)| rest.split_once("</textarea>")).expect("its end").0;
        // A browser leaves out a line break at the beginning.
        unescaped(area.strip_prefix('\n').unwrap_or(area))
    }
}

impl Browser {
    pub(crate) fn new(address: SocketAddr) -> Browser {
        let host = address.to_string();
        let headers = vec![("host", host.clone()), ("origin", format!("http://{host}"))];
        Browser { address, headers }
    }

    pub(crate) fn with(&self, name: &'static str, value: &str) -> Browser {
        let mut browser = self.clone();
        browser.headers.retain(|(known, _)| *known != name);
        browser.headers.push((name, value.to_owned()));
        browser
    }

    pub(crate) async fn get(&self, path: &str) -> Page {
        self.send(Method::GET, path, String::new()).await
    }

    /// Reads a form token from the page `/bulk`, and sends the form with it to `path`.
    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        let token = self.get("/bulk").await.attribute("name=\"form\"", "value");
        let token = token.unwrap_or_default();
        let all = [("form", token.as_str())].into_iter().chain(fields.iter().copied());
        let body: Vec<String> = all.map(|(name, value)| format!("{name}={}", encode(value))).collect();
        self.send(Method::POST, path, body.join("&")).await
    }

    /// Sends a form and opens the page that it leads to.
    pub(crate) async fn post_and_follow(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        let answer = self.post(path, fields).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        self.get(answer.header("location")).await
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: String) -> Page {
        let response = self.open(method, path, body).await;
        let (parts, body) = response.into_parts();
        let text =
            tokio::time::timeout(TIMEOUT, body.collect()).await.expect("the page ends").expect("a body");
        let text = String::from_utf8(text.to_bytes().to_vec()).expect("pages are UTF-8");
        Page { status: parts.status.as_u16(), headers: parts.headers, text }
    }

    /// The answer with its body unread. A test of server-sent events reads the body itself.
    pub(crate) async fn open(&self, method: Method, path: &str, body: String) -> http::Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.expect("the dashboard listens");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
        tokio::spawn(connection);
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method.clone();
        *request.uri_mut() = path.parse().expect("an address");
        for (name, value) in &self.headers {
            request.headers_mut().insert(*name, value.parse().expect("a header"));
        }
        if method == Method::POST {
            let form = header::HeaderValue::from_static("application/x-www-form-urlencoded");
            request.headers_mut().entry(header::CONTENT_TYPE).or_insert(form);
        }
        let answered = tokio::time::timeout(TIMEOUT, sender.send_request(request)).await;
        answered.expect("the dashboard answers").expect("an answer")
    }
}

/// Replaces the references to the five characters that have a meaning in HTML by these characters.
fn unescaped(text: &str) -> String {
    let names = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'")];
    let plain = names.iter().fold(text.to_owned(), |text, (name, sign)| text.replace(name, sign));
    plain.replace("&amp;", "&")
}

pub(crate) fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
