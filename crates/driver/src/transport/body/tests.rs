//! Reading the body of a response in parts, within the limit.

use http::HeaderValue;

use super::*;

fn announcing(length: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from_static(length))])
}

fn collect(parts: &[&Bytes]) -> Bytes {
    let buffered_bytes = AtomicUsize::new(0);
    let mut body = BodyCollector::new(&HeaderMap::new(), &buffered_bytes).unwrap();
    for part in parts {
        body.push((*part).clone()).unwrap();
    }
    let body = body.finish();
    assert_eq!(buffered_bytes.into_inner(), 0, "a complete body is not counted any more");
    body
}

#[test]
fn one_part_is_not_copied_and_several_are_joined() {
    let (empty, a, b) = (Bytes::new(), Bytes::from(vec![1, 2]), Bytes::from(vec![3]));
    assert_eq!(collect(&[&a]).as_ptr(), a.as_ptr());
    assert_eq!(collect(&[&empty, &a, &empty]).as_ref(), [1, 2]);
    assert_eq!(collect(&[&a, &b, &a]).as_ref(), [1, 2, 3, 1, 2]);
    assert_eq!(collect(&[]).len(), 0);
}

/// The limit is 64 MiB, which is 67,108,864 bytes.
#[test]
fn a_body_over_the_limit_is_refused_when_it_is_announced_and_when_it_arrives() {
    let buffered_bytes = AtomicUsize::new(0);
    let body = |length| BodyCollector::new(&announcing(length), &buffered_bytes);
    assert!(body("67108864").is_ok());
    assert_eq!(body("67108865").unwrap_err(), TooLong);
    assert_eq!(body("18446744073709551615").unwrap_err(), TooLong);
    let mut body = body("1").unwrap();
    body.push(Bytes::from(vec![0; BODY_BYTES_MAX])).unwrap();
    assert_eq!(body.push(Bytes::from_static(b"x")), Err(TooLong));
    assert_eq!(buffered_bytes.load(Ordering::Relaxed), BODY_BYTES_MAX);
    drop(body);
    assert_eq!(buffered_bytes.into_inner(), 0, "a body that is given up is not counted any more");
}
