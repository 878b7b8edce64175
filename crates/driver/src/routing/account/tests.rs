//! The account's locations: their order, their health, and what a new account document changes.

use serde_json::json;

use super::*;

/// How long a failed endpoint is avoided before it is probed.
const PERIOD: Duration = Duration::from_secs(60);

fn endpoint(text: &str) -> Endpoint {
    Endpoint::parse(text).unwrap()
}

fn location_json(region: &str) -> serde_json::Value {
    let host = region.to_ascii_lowercase().replace(' ', "");
    json!({"name": region, "databaseAccountEndpoint": format!("https://a-{host}.example:443/")})
}

fn document(readable: &[&str], writable: &[&str], is_multi_write: bool) -> serde_json::Value {
    json!({
        "_self": "", "id": "a", "queryEngineConfiguration": "{}",
        "readableLocations": readable.iter().copied().map(location_json).collect::<Vec<_>>(),
        "writableLocations": writable.iter().copied().map(location_json).collect::<Vec<_>>(),
        "enableMultipleWriteLocations": is_multi_write,
        "userConsistencyPolicy": {"defaultConsistencyLevel": "BoundedStaleness", "maxStalenessPrefix": 100},
    })
}

fn bootstrap() -> Account {
    Account::bootstrap(endpoint("https://a.example:443/"))
}

fn read(document: &serde_json::Value, preferred: &[&str], previous: &Account) -> Account {
    let preferred: Vec<Region> = preferred.iter().map(Region::new).collect();
    Account::from_document(document.to_string().as_bytes(), &preferred, previous).unwrap()
}

fn names(locations: &[Arc<Location>]) -> Vec<&str> {
    locations.iter().map(|location| location.region.name()).collect()
}

const THREE_REGIONS: [&str; 3] = ["West US", "East US", "North Europe"];

#[test]
fn before_the_account_is_read_there_is_only_the_configured_endpoint() {
    let account = bootstrap();
    assert_eq!(account.generation, 0);
    for locations in [&account.read_locations, &account.write_locations] {
        assert!(locations.len() == 1 && Arc::ptr_eq(&locations[0], &account.configured_location));
    }
    assert!(account.is_available(&account.configured_location.endpoint, Usage::Read));
}

#[test]
fn preferred_regions_come_first_in_their_order() {
    for (preferred, is_multi_write, reads, writes) in [
        (vec![], false, vec!["West US", "East US", "North Europe"], vec!["West US"]),
        (vec!["northeurope"], false, vec!["North Europe", "West US", "East US"], vec!["West US"]),
        (
            vec!["North Europe", "EAST us"],
            true,
            vec!["North Europe", "East US", "West US"],
            vec!["North Europe", "East US", "West US"],
        ),
        (
            vec!["Mars", "East US"],
            true,
            vec!["East US", "West US", "North Europe"],
            vec!["East US", "West US", "North Europe"],
        ),
    ] {
        let writable: &[&str] = if is_multi_write { &THREE_REGIONS } else { &THREE_REGIONS[..1] };
        let account = read(&document(&THREE_REGIONS, writable, is_multi_write), &preferred, &bootstrap());
        assert_eq!(
            (names(&account.read_locations), names(&account.write_locations)),
            (reads, writes),
            "{preferred:?}"
        );
        assert_eq!((account.is_multi_write, account.generation), (is_multi_write, 1));
        assert_eq!(account.consistency, Consistency::BoundedStaleness);
        assert_eq!(account.configured_location.endpoint, endpoint("https://a.example:443"));
        assert!(!account.is_hedging_disabled);
    }
}

#[test]
fn locations_and_their_latencies_outlive_a_snapshot() {
    let first = read(&document(&THREE_REGIONS, &THREE_REGIONS[..1], false), &[], &bootstrap());
    assert!(Arc::ptr_eq(
        &first.read_locations[1],
        &read(&document(&THREE_REGIONS, &THREE_REGIONS[..1], false), &["East US"], &first).read_locations[0]
    ));
    let mut moved = document(&THREE_REGIONS, &THREE_REGIONS[1..2], false);
    moved["readableLocations"][0]["databaseAccountEndpoint"] = "https://elsewhere.example/".into();
    let second = read(&moved, &[], &first);
    assert!(Arc::ptr_eq(&first.read_locations[2], &second.read_locations[2]));
    assert!(
        Arc::ptr_eq(&second.read_locations[1], &second.write_locations[0]),
        "reads and writes share the location of a region"
    );
    assert!(
        !Arc::ptr_eq(&first.read_locations[0], &second.read_locations[0]),
        "another endpoint is another location"
    );
    assert_eq!(second.generation, 2);
}

#[test]
fn consistency_levels_are_parsed_and_an_unknown_level_counts_as_session() {
    for (level, expected) in [
        (json!("Strong"), Consistency::Strong),
        (json!("BoundedStaleness"), Consistency::BoundedStaleness),
        (json!("Session"), Consistency::Session),
        (json!("ConsistentPrefix"), Consistency::ConsistentPrefix),
        (json!("Eventual"), Consistency::Eventual),
        (json!("Telepathic"), Consistency::Session),
        (json!(null), Consistency::Session),
    ] {
        let mut document = document(&THREE_REGIONS, &THREE_REGIONS, true);
        document["userConsistencyPolicy"] = json!({"defaultConsistencyLevel": level});
        assert_eq!(read(&document, &[], &bootstrap()).consistency, expected, "{level}");
    }
}

#[test]
fn the_service_can_switch_hedging_off() {
    let mut document = document(&THREE_REGIONS, &THREE_REGIONS, true);
    document["disableCrossRegionalHedging"] = true.into();
    assert!(read(&document, &[], &bootstrap()).is_hedging_disabled);
}

#[test]
fn a_document_without_regions_is_refused_and_a_region_with_a_bad_address_is_left_out() {
    for bad in ["", "[]", "nonsense", "{}", r#"{"readableLocations":[]}"#, r#"{"readableLocations":null}"#] {
        assert!(Account::from_document(bad.as_bytes(), &[], &bootstrap()).is_err(), "{bad:?}");
    }
    let mut bad_address = document(&["West US", "East US", "West US"], &[], false);
    bad_address["readableLocations"][0]["databaseAccountEndpoint"] = "ftp://nowhere".into();
    let account = read(&bad_address, &[], &bootstrap());
    assert_eq!(names(&account.read_locations), ["East US", "West US"]);
    assert!(
        Arc::ptr_eq(&account.write_locations[0], &account.configured_location),
        "without a write region the configured endpoint is asked"
    );
    let twice = read(&document(&["West US", "westus"], &["West US"], false), &[], &bootstrap());
    assert_eq!(names(&twice.read_locations), ["West US"], "a region counts once");
}

#[test]
fn time_alone_does_not_make_an_endpoint_available() {
    let account = read(&document(&THREE_REGIONS, &THREE_REGIONS, true), &[], &bootstrap());
    let (west, east) =
        (account.read_locations[0].endpoint.clone(), account.read_locations[1].endpoint.clone());
    let now = Instant::now();
    let marked = account.mark_unavailable(&west, Usage::Read, now, PERIOD);
    assert!(account.is_available(&west, Usage::Read), "the earlier snapshot stays as it was");
    assert!(!marked.is_available(&west, Usage::Read));
    assert!(marked.is_available(&west, Usage::Write), "only reads are marked");
    assert!(marked.is_available(&east, Usage::Read));
    assert_eq!(marked.due_for_probe(now + PERIOD - Duration::from_millis(1)), []);
    assert_eq!(marked.due_for_probe(now + PERIOD), std::slice::from_ref(&west));
    assert!(
        !marked.is_available(&west, Usage::Read),
        "an endpoint that is due for a probe is still unavailable"
    );
    assert!(marked.mark_available(&west).is_available(&west, Usage::Read));
    assert_eq!(marked.mark_available(&west).due_for_probe(now + PERIOD * 9), []);
}

#[test]
fn a_later_failure_postpones_the_probe() {
    let account = bootstrap();
    let configured = account.configured_location.endpoint.clone();
    let now = Instant::now();
    let marked = account.mark_unavailable(&configured, Usage::Read, now, PERIOD);
    let again = marked.mark_unavailable(&configured, Usage::Read, now + PERIOD, PERIOD);
    assert_eq!(again.due_for_probe(now + PERIOD), []);
    let both = again.mark_unavailable(&configured, Usage::Write, now + PERIOD * 2, PERIOD);
    assert_eq!(both.due_for_probe(now + PERIOD * 2), [], "the later of the two failures counts");
    assert_eq!(both.due_for_probe(now + PERIOD * 3), std::slice::from_ref(&configured), "one probe for both");
    let cleared = both.mark_available(&configured);
    assert!(
        cleared.is_available(&configured, Usage::Read) && cleared.is_available(&configured, Usage::Write)
    );
}

#[test]
fn reading_the_account_again_keeps_endpoints_unavailable() {
    let now = Instant::now();
    let first = read(&document(&THREE_REGIONS, &THREE_REGIONS, true), &[], &bootstrap());
    let [west, east, _] = [0, 1, 2].map(|place| first.read_locations[place].endpoint.clone());
    let first = first.mark_unavailable(&west, Usage::Read, now, PERIOD);
    let first = first.mark_unavailable(&east, Usage::Write, now, PERIOD);
    let second = read(&document(&THREE_REGIONS[..1], &THREE_REGIONS[..1], false), &[], &first);
    assert!(!second.is_available(&west, Usage::Read));
    assert_eq!(
        second.due_for_probe(now + PERIOD),
        [west],
        "a region that the account no longer has is not probed"
    );
}

/// This was a defect. The write region moved from West to East, and back to West within the
/// minute for which a region that refuses writes is avoided. Writes then tried every region
/// except West, the write region.
#[test]
fn a_region_that_becomes_the_write_region_is_no_longer_avoided_for_writes() {
    let now = Instant::now();
    let moved_to =
        |region: &str, previous: &Account| read(&document(&THREE_REGIONS, &[region], false), &[], previous);
    let first = moved_to("West US", &bootstrap());
    let [west, east] = [0, 1].map(|place| first.read_locations[place].endpoint.clone());
    let second = moved_to("East US", &first);
    let marked = second.mark_unavailable(&west, Usage::Write, now, PERIOD);
    let marked = marked.mark_unavailable(&west, Usage::Read, now, PERIOD);
    let third = moved_to("West US", &marked);
    assert!(third.is_available(&west, Usage::Write));
    assert!(!third.is_available(&west, Usage::Read), "West US stays unavailable for reads");
    let again = third.mark_unavailable(&west, Usage::Write, now, PERIOD);
    let again = again.mark_unavailable(&east, Usage::Write, now, PERIOD);
    let fourth = moved_to("West US", &again);
    assert!(!fourth.is_available(&west, Usage::Write), "West US was already the write region");
    assert!(!fourth.is_available(&east, Usage::Write));
}

#[test]
fn an_emulator_behind_a_mapped_port_keeps_its_configured_endpoint() {
    let previous = Account::bootstrap(endpoint("http://localhost:9000"));
    let inside = json!([{"name": "South Central US", "databaseAccountEndpoint": "http://172.17.0.2:8081/"}]);
    let account = read(&json!({"readableLocations": inside, "writableLocations": inside}), &[], &previous);
    assert_eq!(account.read_locations[0].endpoint, previous.configured_location.endpoint);
    assert_eq!(account.read_locations[0].region, Region::new("South Central US"));
    assert!(Arc::ptr_eq(&account.read_locations[0], &account.write_locations[0]));
    let again = read(&json!({"readableLocations": inside, "writableLocations": inside}), &[], &account);
    assert!(Arc::ptr_eq(&again.read_locations[0], &account.read_locations[0]));
    let two = json!([location_json("West US"), location_json("East US")]);
    let several = read(&json!({"readableLocations": two, "writableLocations": [two[0]]}), &[], &previous);
    assert_eq!(
        several.read_locations[0].endpoint,
        endpoint("https://a-westus.example:443"),
        "with several regions, the endpoints of the document are used"
    );
}

fn hosts(locations: &[Arc<Location>]) -> Vec<&str> {
    locations.iter().map(|location| location.endpoint.host().split('.').next().unwrap()).collect()
}

#[test]
fn suspect_and_unavailable_endpoints_are_asked_last() {
    let account = read(&document(&THREE_REGIONS, &["West US"], false), &["East US"], &bootstrap());
    let ask = |account: &Account, suspect: Option<&str>| {
        let suspect = suspect.map(endpoint);
        hosts(&account.locations_to_ask(&[Region::new("East US")], &[], suspect.as_ref())).join(" ")
    };
    assert_eq!(ask(&account, None), "a a-eastus a-westus a-northeurope");
    assert_eq!(ask(&account, Some("https://a-eastus.example:443/")), "a a-westus a-northeurope a-eastus");
    // The configured endpoint leads to the write region.
    assert_eq!(ask(&account, Some("https://a-westus.example:443/")), "a-eastus a-northeurope a a-westus");
    let marked =
        account.mark_unavailable(&endpoint("https://a.example:443/"), Usage::Read, Instant::now(), PERIOD);
    assert_eq!(ask(&marked, None), "a-eastus a-westus a-northeurope a");
}

#[test]
fn before_the_account_is_read_preferred_regions_are_asked_at_their_usual_host_names() {
    let preferred = [Region::new("West US 2"), Region::new("northeurope")];
    let ask = |configured: &str| {
        let asked = Account::bootstrap(endpoint(configured)).locations_to_ask(&preferred, &[], None);
        asked.iter().map(|location| location.endpoint.to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        ask("https://shop.documents.azure.com:443/"),
        "https://shop.documents.azure.com:443 https://shop-westus2.documents.azure.com:443 \
         https://shop-northeurope.documents.azure.com:443"
    );
    for own in ["http://localhost:8081", "https://127.0.0.1:8081", "https://cosmos.example:443"] {
        assert_eq!(ask(own), own, "only hosts of the service have regional host names");
    }
}

/// Thin-client endpoints are known, and are not used for requests. An account that does not
/// name them has none.
#[test]
fn thin_client_endpoints_are_known_and_not_used() {
    let location = |name: &str, host: &str| json!({"name": name, "databaseAccountEndpoint": host});
    let mut document = json!({
        "readableLocations": [location("West", "https://west.example:443/")],
        "writableLocations": [location("West", "https://west.example:443/")],
        "thinClientReadableLocations": [
            location("West", "https://west-thin.example:10250/"),
            location("East", "not an endpoint"),
        ],
        "thinClientWritableLocations": [location("West", "https://west-thin.example:10250/")],
        "enablePerPartitionFailoverBehavior": true,
    });
    let before = Account::bootstrap(Endpoint::parse("https://configured.example").unwrap());
    let parse = |document: &serde_json::Value| {
        Account::from_document(document.to_string().as_bytes(), &[], &before).unwrap()
    };
    let account = parse(&document);
    let thin = (Region::new("West"), Endpoint::parse("https://west-thin.example:10250/").unwrap());
    assert_eq!(account.thin_client, ThinClient { read: vec![thin.clone()], write: vec![thin] });
    assert_eq!(account.read_locations[0].endpoint, Endpoint::parse("https://west.example:443/").unwrap());
    assert!(account.has_partition_failover);
    document["enableMultipleWriteLocations"] = true.into();
    assert!(!parse(&document).has_partition_failover, "every region takes writes");
    document["thinClientReadableLocations"].take();
    document["thinClientWritableLocations"].take();
    assert_eq!(parse(&document).thin_client, ThinClient::default());
}

#[test]
fn backup_endpoints_are_asked_after_the_known_regions_and_before_guesses() {
    let backups = ["https://backup.example", "https://shop.documents.azure.com"].map(endpoint);
    let guessed = [Region::new("West US")];
    let account = Account::bootstrap(endpoint("https://shop.documents.azure.com"));
    let asked = account.locations_to_ask(&guessed, &backups, None);
    assert_eq!(hosts(&asked), ["shop", "backup", "shop-westus"], "each endpoint once");
    let account = read(&document(&THREE_REGIONS[..1], &THREE_REGIONS[..1], false), &[], &bootstrap());
    assert_eq!(hosts(&account.locations_to_ask(&guessed, &backups[..1], None)), ["a", "a-westus", "backup"]);
}

#[test]
fn without_discovery_only_the_configured_endpoint_is_used() {
    let now = Instant::now();
    let account = read(&document(&THREE_REGIONS, &THREE_REGIONS, true), &[], &bootstrap());
    let account = account
        .mark_unavailable(&endpoint("https://a-westus.example:443/"), Usage::Read, now, PERIOD)
        .limited_to_configured();
    for locations in [&account.read_locations, &account.write_locations] {
        assert!(locations.len() == 1 && Arc::ptr_eq(&locations[0], &account.configured_location));
    }
    assert!(Arc::ptr_eq(&account.hub, &account.configured_location));
    assert!(account.is_multi_write && !account.has_unavailable_endpoint());
    assert_eq!(hosts(&account.locations_to_ask(&[], &[], None)), ["a"]);
}
