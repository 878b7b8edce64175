//! Tests of which account is meant.

use super::*;

/// An option, a variable or a line of the file, in the order in which they are looked for.
#[derive(Clone, Copy)]
struct Case {
    options: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    file: Option<&'static str>,
    expected: &'static str,
}

/// The account in one line: what named it, where it is, its key, its container.
fn resolved(case: &Case) -> String {
    let Case { options, variables, file, .. } = case;
    let option = |name: &str| {
        let mut pairs = options.chunks(2);
        pairs.find(|pair| pair[0] == name).map(|pair| pair[1].to_owned())
    };
    let typed = AccountArgs {
        connection_string: option("--connection-string"),
        endpoint: option("--endpoint"),
        key_file: option("--key-file").map(PathBuf::from),
        key: option("--key"),
        data: option("--data").map(PathBuf::from),
    };
    let names = NameArgs { database: option("--database"), container: option("--container") };
    let variable =
        |name: &str| variables.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned());
    let path = Path::new("/srv/x/perihelion.toml");
    let file = file.map(|text| ConfigFile::parse(&format!("[account]\n{text}"), path).unwrap());
    match Account::resolve(&typed, &names, &Surroundings { variable: &variable, file }) {
        Err(failure) => format!("{failure:?}"),
        Ok(account) => {
            let key = account.endpoint_and_key().and_then(|(_, key)| key).unwrap_or("-");
            let key = if key == EMULATOR_KEY { "well-known" } else { key };
            assert!(!format!("{account:?}").contains("c2VjcmV0"), "{account:?}");
            format!(
                "{}{} key={key} {}/{}",
                account.shown(),
                account.shown_source(),
                account.database,
                account.container
            )
        }
    }
}

#[test]
fn the_first_place_that_names_an_account_wins_whole() {
    let azure = "AccountEndpoint=https://azure/;AccountKey=c2VjcmV0;";
    let cosmos = "AccountKey=c2VjcmV0Mg==; accountendpoint=https://cosmos/;";
    let endpoint = [("COSMOS_ENDPOINT", "https://env/"), ("COSMOS_KEY", "c2VjcmV0Mw==")];
    let file = "endpoint = \"https://file/\"\nkey = \"c2VjcmV0NA==\"\ndatabase = \"shop\"";
    let both: &'static [(&str, &str)] = Box::leak(Box::new([
        ("COSMOS_CONNECTION_STRING", cosmos),
        ("AZURE_COSMOS_CONNECTION_STRING", azure),
    ]));
    let one: &'static [(&str, &str)] =
        Box::leak(Box::new([endpoint[0], endpoint[1], ("COSMOS_CONNECTION_STRING", cosmos)]));
    let endpoint: &'static [(&str, &str)] = Box::leak(Box::new(endpoint));
    let case = |options, variables, file, expected| Case { options, variables, file, expected };
    for case in [
        case(&[], &[], None, "http://127.0.0.1:8081/ (the default) key=well-known duroxide/duroxide"),
        case(
            &[],
            &[],
            Some("database = \"shop\""),
            "http://127.0.0.1:8081/ (the default) key=well-known shop/duroxide",
        ),
        case(
            &[],
            &[],
            Some(file),
            "https://file/ (from /srv/x/perihelion.toml) key=c2VjcmV0NA== shop/duroxide",
        ),
        case(
            &[],
            &[],
            Some("data = \"d\""),
            "/srv/x/d (from /srv/x/perihelion.toml) key=- duroxide/duroxide",
        ),
        case(&[], endpoint, Some(file), "https://env/ (from COSMOS_ENDPOINT) key=c2VjcmV0Mw== shop/duroxide"),
        case(
            &[],
            one,
            None,
            "https://cosmos/ (from COSMOS_CONNECTION_STRING) key=c2VjcmV0Mg== duroxide/duroxide",
        ),
        case(
            &[],
            both,
            None,
            "https://azure/ (from AZURE_COSMOS_CONNECTION_STRING) key=c2VjcmV0 duroxide/duroxide",
        ),
        case(&["--endpoint", "https://typed/"], both, Some(file), "https://typed/ key=- shop/duroxide"),
        case(
            &["--endpoint", "https://typed/"],
            endpoint,
            None,
            "https://typed/ key=c2VjcmV0Mw== duroxide/duroxide",
        ),
        case(
            &["--endpoint", "https://typed/", "--key", "a2V5"],
            endpoint,
            None,
            "https://typed/ key=a2V5 duroxide/duroxide",
        ),
        case(
            &["--key", "a2V5"],
            &[],
            Some(file),
            "https://file/ (from /srv/x/perihelion.toml) key=a2V5 shop/duroxide",
        ),
        case(
            &["--key", "a2V5"],
            endpoint,
            None,
            "https://env/ (from COSMOS_ENDPOINT) key=a2V5 duroxide/duroxide",
        ),
        case(
            &["--endpoint", "http://localhost:1/"],
            &[],
            None,
            "http://localhost:1/ key=well-known duroxide/duroxide",
        ),
        case(&["--data", "./d"], endpoint, Some(file), "./d key=- shop/duroxide"),
        case(
            &["--database", "a", "--container", "b"],
            &[("COSMOS_DATABASE", "c"), ("COSMOS_ENDPOINT", " "), ("COSMOSDB_ENDPOINT", "https://db/")],
            Some(file),
            "https://db/ (from COSMOSDB_ENDPOINT) key=- a/b",
        ),
        case(
            &[],
            &[("COSMOS_DATABASE", "c"), ("COSMOS_CONTAINER", "d")],
            Some(file),
            "https://file/ (from /srv/x/perihelion.toml) key=c2VjcmV0NA== c/d",
        ),
    ] {
        assert_eq!(resolved(&case), case.expected);
    }
}

#[test]
fn an_account_that_is_named_twice_is_refused() {
    let refused = |options: &'static [&'static str], file: Option<&'static str>, words: &str| {
        let text = resolved(&Case { options, variables: &[], file, expected: "" });
        assert!(text.starts_with("Failure") && text.contains(words), "{text}");
        assert!(!text.contains("c2VjcmV0"), "{text}");
    };
    let typed = ["--endpoint", "https://a/", "--connection-string", "AccountKey=c2VjcmV0"];
    refused(Box::leak(Box::new(typed)), None, "named twice");
    refused(&["--endpoint", "https://a/", "--data", "d"], None, "named twice");
    refused(&[], Some("endpoint = \"https://a/\"\ndata = \"d\""), "names the account twice");
    refused(&["--endpoint", "https://a/", "--key", "c2VjcmV0", "--key-file", "f"], None, "both a key and");
    refused(&["--data", "d", "--key", "c2VjcmV0"], None, "not named by an endpoint");
    refused(&["--endpoint", "https://a/", "--key-file", "/no/such/file"], None, "/no/such/file");
}
