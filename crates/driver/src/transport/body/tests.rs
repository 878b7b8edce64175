use http::HeaderValue;

use super::*;

fn announcing(length: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from_static(length))])
}

fn gather(parts: &[&Bytes]) -> Bytes {
    let mut gathering = BodyCollector::new(&HeaderMap::new()).unwrap();
    for part in parts {
        gathering.push((*part).clone()).unwrap();
    }
    gathering.finish()
}

#[test]
fn one_part_is_not_copied_and_several_are_joined() {
    let (empty, a, b) = (Bytes::new(), Bytes::from(vec![1, 2]), Bytes::from(vec![3]));
    assert_eq!(gather(&[&a]).as_ptr(), a.as_ptr());
    assert_eq!(gather(&[&empty, &a, &empty]).as_ref(), [1, 2]);
    assert_eq!(gather(&[&a, &b, &a]).as_ref(), [1, 2, 3, 1, 2]);
    assert_eq!(gather(&[]).len(), 0);
}

#[test]
fn a_body_over_the_limit_is_refused_when_announced_and_when_it_comes() {
    assert!(BodyCollector::new(&announcing("67108864")).is_ok());
    assert_eq!(BodyCollector::new(&announcing("67108865")).unwrap_err(), TooLong);
    assert_eq!(BodyCollector::new(&announcing("18446744073709551615")).unwrap_err(), TooLong);
    let mut gathering = BodyCollector::new(&announcing("1")).unwrap();
    gathering.push(Bytes::from(vec![0; BODY_BYTES_MAX])).unwrap();
    assert_eq!(gathering.push(Bytes::from_static(b"x")), Err(TooLong));
}
