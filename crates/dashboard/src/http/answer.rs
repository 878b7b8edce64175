//! `Answer`: an answer of the dashboard. Every answer has the same headers for the browser: no
//! script or style except the dashboard's own files, no frames, no guessing of types. A browser may keep
//! only the dashboard's own files, and only if their address has the version of their content.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use perihelion_model::metrics::PROMETHEUS_CONTENT_TYPE;
use tokio::sync::mpsc::Receiver;

use super::Body;
use crate::html::{Html, Link};

/// A page may load files only from the dashboard and send forms only to the dashboard. Inline scripts
/// and styles are forbidden, so that markup in a text has no effect even if it was not escaped.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// How long a browser keeps a file of the dashboard. Its address changes with its content.
const ASSET_CACHING: HeaderValue = HeaderValue::from_static("private, max-age=86400, immutable");

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    status: StatusCode,
    content_type: &'static str,
    body: Body,
    location: Option<String>,
    cookie: Option<String>,
    is_cached: bool,
}

impl Answer {
    fn new(status: StatusCode, content_type: &'static str, body: Body) -> Answer {
        Answer { status, content_type, body, location: None, cookie: None, is_cached: false }
    }

    pub(crate) fn html(status: StatusCode, html: Html) -> Answer {
        let body = Body::Whole(Bytes::from(html.as_str().to_owned()));
        Answer::new(status, "text/html; charset=utf-8", body)
    }

    pub(crate) fn text(status: StatusCode, text: &str) -> Answer {
        Answer::new(status, "text/plain; charset=utf-8", Body::Whole(Bytes::from(text.to_owned())))
    }

    /// A file of the dashboard. `is_cached` says whether a browser may keep the file. It may if the
    /// address contains the version of the content.
    pub(crate) fn asset(content_type: &'static str, content: &'static str, is_cached: bool) -> Answer {
        let body = Body::Whole(Bytes::from_static(content.as_bytes()));
        Answer { is_cached, ..Answer::new(StatusCode::OK, content_type, body) }
    }

    /// A JSON file. A browser that saves it uses the name in the address, such as `history.json`.
    pub(crate) fn json(text: String) -> Answer {
        Answer::new(StatusCode::OK, "application/json", Body::Whole(Bytes::from(text)))
    }

    /// Metrics in the text format of Prometheus.
    pub(crate) fn metrics(text: String) -> Answer {
        Answer::new(StatusCode::OK, PROMETHEUS_CONTENT_TYPE, Body::Whole(Bytes::from(text)))
    }

    /// Server-sent events.
    pub(crate) fn events(pieces: Receiver<Bytes>) -> Answer {
        Answer::new(StatusCode::OK, "text/event-stream", Body::Stream(pieces))
    }

    /// Leads the browser to a page after a form was sent.
    pub(crate) fn redirect(link: &Link) -> Answer {
        let body = Body::Whole(Bytes::new());
        let location = Some(link.to_string());
        Answer { location, ..Answer::new(StatusCode::SEE_OTHER, "text/plain", body) }
    }

    pub(crate) fn with_cookie(self, cookie: String) -> Answer {
        Answer { cookie: Some(cookie), ..self }
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        let caching = if self.is_cached { ASSET_CACHING } else { HeaderValue::from_static("no-store") };
        let fixed = [
            (header::CONTENT_TYPE, HeaderValue::from_static(self.content_type)),
            (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY)),
            (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
            (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            // With `no-referrer`, browsers send forms without their origin, which is checked.
            (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
            (header::CACHE_CONTROL, caching),
        ];
        response.headers_mut().extend(fixed);
        let texts = [(header::LOCATION, self.location), (header::SET_COOKIE, self.cookie)];
        for (name, text) in texts {
            // Links are percent-encoded and cookies are letters, so both are valid.
            if let Some(value) = text.and_then(|text| HeaderValue::from_str(&text).ok()) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}
