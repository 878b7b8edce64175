//! Opening a TCP connection: the order of the addresses, and the socket options.

use super::*;

#[test]
fn address_families_alternate() {
    let addresses: Vec<SocketAddr> =
        ["[::1]:1", "[::2]:1", "[::3]:1", "127.0.0.1:1"].iter().map(|text| text.parse().unwrap()).collect();
    let mixed: Vec<String> = interleave(&addresses).iter().map(ToString::to_string).collect();
    assert_eq!(mixed, ["[::1]:1", "127.0.0.1:1", "[::2]:1", "[::3]:1"]);
    assert!(interleave(&[]).is_empty());
}

#[test]
fn of_many_addresses_both_families_are_tried() {
    let many = (1..=20).map(|number| format!("[::{number}]:1")).chain(["127.0.0.1:1".to_owned()]);
    let addresses: Vec<SocketAddr> = many.map(|text| text.parse().unwrap()).collect();
    let tried = interleave(&addresses);
    assert_eq!(tried.len(), ADDRESSES_MAX);
    assert!(tried[1].is_ipv4(), "{tried:?}");
}

#[tokio::test]
async fn after_an_address_that_refuses_the_next_one_is_tried() {
    // Nobody listens on port 1.
    let refusing = "127.0.0.1:1".parse().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listening = listener.local_addr().unwrap();
    let stream = connect_first(vec![refusing, listening]).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), listening);
    let error = connect_first(vec![refusing, refusing]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(connect_first(Vec::new()).await.unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[tokio::test]
async fn a_new_connection_has_keepalive_and_does_not_delay_small_frames() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stream = dial("127.0.0.1", port, &"the listener").await.unwrap();
    assert!(stream.nodelay().unwrap());
    assert!(socket2::SockRef::from(&stream).keepalive().unwrap());
}
