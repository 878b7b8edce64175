//! Tests of `Account::resolve`: which account the options, the environment and the file mean. A key that
//! begins with `c2VjcmV0` ("secret" in base64) must never be in an error message.

use super::*;

/// The options, the variables and the lines of the file, in the order in which they are looked for,
/// and the account that they name. The options are pairs of a name and a value; the value of `--entra`
/// is empty.
#[derive(Clone, Copy)]
struct Case {
    options: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    file: Option<&'static str>,
    expected: &'static str,
}

/// The account in one line: where it is, the place that named it, its key, its container. If it cannot be
/// resolved, the failure.
fn resolved(case: &Case) -> String {
    let Case { options, variables, file, .. } = case;
    let option = |name: &str| {
        let mut pairs = options.chunks(2);
        pairs.find(|pair| pair[0] == name).map(|pair| pair[1].to_owned())
    };
    let args = AccountArgs {
        connection_string: option("--connection-string"),
        endpoint: option("--endpoint"),
        key_file: option("--key-file").map(PathBuf::from),
        key: option("--key"),
        entra: option("--entra").is_some(),
        data: option("--data").map(PathBuf::from),
    };
    let names = NameArgs { database: option("--database"), container: option("--container") };
    let variable =
        |name: &str| variables.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned());
    let path = Path::new("/srv/x/perihelion.toml");
    let file = file.map(|text| ConfigFile::parse(&format!("[account]\n{text}"), path).unwrap());
    match Account::resolve(&args, &names, &Surroundings { variable: &variable, file }) {
        Err(failure) => format!("{failure:?}"),
        Ok(account) => {
            let key = account.endpoint_and_key().and_then(|(_, key)| key).unwrap_or("-");
            let key = match key {
                EMULATOR_KEY => "well-known",
                _ if account.is_entra() => "entra",
                _ => key,
            };
            assert!(!format!("{account:?}").contains("c2VjcmV0"), "{account:?}");
            format!(
                "{}{} key={key} {}/{}",
                account.display_name(),
                account.display_source(),
                account.database,
                account.container
            )
        }
    }
}

#[test]
fn the_first_place_that_names_an_account_wins() {
    let azure = "AccountEndpoint=https://azure/;AccountKey=c2VjcmV0;";
    let cosmos = "AccountKey=c2VjcmV0Mg==; accountendpoint=https://cosmos/;";
    let endpoint = [("COSMOS_ENDPOINT", "https://env/"), ("COSMOS_KEY", "c2VjcmV0Mw==")];
    let file = "endpoint = \"https://file/\"\nkey = \"c2VjcmV0NA==\"\ndatabase = \"shop\"";
    let two_accounts: &'static [(&str, &str)] = Box::leak(Box::new([
        ("COSMOS_CONNECTION_STRING", cosmos),
        ("AZURE_COSMOS_CONNECTION_STRING", azure),
    ]));
    let one_account_twice: &'static [(&str, &str)] = Box::leak(Box::new([
        ("COSMOS_CONNECTION_STRING", cosmos),
        ("COSMOS_ENDPOINT", "https://COSMOS:443"),
        ("COSMOS_KEY", "c2VjcmV0Mw=="),
    ]));
    let endpoint: &'static [(&str, &str)] = Box::leak(Box::new(endpoint));
    let case = |options, variables, file, expected| Case { options, variables, file, expected };
    for case in [
        case(&[], &[], None, "http://127.0.0.1:8081 (the local default) key=well-known duroxide/duroxide"),
        case(
            &[],
            &[],
            Some("database = \"shop\""),
            "http://127.0.0.1:8081 (the local default) key=well-known shop/duroxide",
        ),
        case(
            &[],
            &[],
            Some(file),
            "https://file (from /srv/x/perihelion.toml) key=c2VjcmV0NA== shop/duroxide",
        ),
        case(
            &[],
            &[],
            Some("data = \"d\""),
            "/srv/x/d (from /srv/x/perihelion.toml) key=- duroxide/duroxide",
        ),
        case(&[], endpoint, Some(file), "https://env (from COSMOS_ENDPOINT) key=c2VjcmV0Mw== shop/duroxide"),
        case(
            &[],
            one_account_twice,
            None,
            "https://cosmos (from COSMOS_CONNECTION_STRING) key=c2VjcmV0Mg== duroxide/duroxide",
        ),
        case(
            &["--endpoint", "https://typed/"],
            two_accounts,
            Some(file),
            "https://typed (from --endpoint) key=- shop/duroxide",
        ),
        case(
            &["--endpoint", "https://typed/"],
            endpoint,
            None,
            "https://typed (from --endpoint) key=c2VjcmV0Mw== duroxide/duroxide",
        ),
        case(
            &["--endpoint", "https://typed/", "--key", "a2V5"],
            endpoint,
            None,
            "https://typed (from --endpoint) key=a2V5 duroxide/duroxide",
        ),
        case(
            &["--key", "a2V5"],
            &[],
            Some(file),
            "https://file (from /srv/x/perihelion.toml) key=a2V5 shop/duroxide",
        ),
        case(
            &["--key", "a2V5"],
            endpoint,
            None,
            "https://env (from COSMOS_ENDPOINT) key=a2V5 duroxide/duroxide",
        ),
        case(
            &["--endpoint", "http://localhost:1/"],
            &[],
            None,
            "http://localhost:1 (from --endpoint) key=well-known duroxide/duroxide",
        ),
        case(&["--data", "./d"], endpoint, Some(file), "./d (from --data) key=- shop/duroxide"),
        case(
            &["--database", "a", "--container", "b"],
            &[("COSMOS_DATABASE", "c"), ("COSMOS_ENDPOINT", " "), ("COSMOSDB_ENDPOINT", "https://db/")],
            Some(file),
            "https://db (from COSMOSDB_ENDPOINT) key=- a/b",
        ),
        case(
            &[],
            &[("COSMOS_DATABASE", "c"), ("COSMOS_CONTAINER", "d")],
            Some(file),
            "https://file (from /srv/x/perihelion.toml) key=c2VjcmV0NA== c/d",
        ),
    ] {
        assert_eq!(resolved(&case), case.expected);
    }
}

#[test]
fn an_account_named_twice_and_an_unusable_key_are_refused() {
    let refused = |options: &'static [&'static str], file: Option<&'static str>, words: &str| {
        let text = resolved(&Case { options, variables: &[], file, expected: "" });
        assert!(text.starts_with("Failure") && text.contains(words), "{text}");
        assert!(!text.contains("c2VjcmV0"), "{text}");
    };
    let args = ["--endpoint", "https://a/", "--connection-string", "AccountKey=c2VjcmV0"];
    refused(Box::leak(Box::new(args)), None, "named twice");
    refused(&["--endpoint", "https://a/", "--data", "d"], None, "named twice");
    refused(&[], Some("endpoint = \"https://a/\"\ndata = \"d\""), "names the account twice");
    refused(&["--endpoint", "https://a/", "--key", "c2VjcmV0", "--key-file", "f"], None, "both a key and");
    refused(&["--data", "d", "--key", "c2VjcmV0"], None, "not named by an endpoint");
    refused(&["--endpoint", "https://a/", "--key-file", "/no/such/file"], None, "/no/such/file");
}

const KEYS_IN_ENVIRONMENT: &[(&str, &str)] = &[("COSMOS_KEY", "c2VjcmV0"), ("COSMOSDB_KEY", "c2VjcmV0")];

#[test]
fn an_endpoint_in_the_file_never_gets_a_key_of_the_environment() {
    let check = |options, file: &'static str, expected: &str| {
        let case = Case { options, variables: KEYS_IN_ENVIRONMENT, file: Some(file), expected: "" };
        assert_eq!(resolved(&case), expected, "{file}");
    };
    let path = "from /srv/x/perihelion.toml";
    check(&[], "endpoint = \"https://evil/\"", &format!("https://evil ({path}) key=- duroxide/duroxide"));
    check(
        &["--key", "a2V5"],
        "endpoint = \"https://evil/\"",
        &format!("https://evil ({path}) key=a2V5 duroxide/duroxide"),
    );
    check(
        &[],
        "endpoint = \"http://localhost:8081/\"",
        &format!("http://localhost:8081 ({path}) key=well-known duroxide/duroxide"),
    );
}

#[test]
fn variables_that_name_two_accounts_are_refused_unless_an_option_names_one() {
    let azure = ("AZURE_COSMOS_CONNECTION_STRING", "AccountEndpoint=https://azure/;AccountKey=c2VjcmV0;");
    let two: &'static [(&str, &str)] =
        Box::leak(Box::new([azure, ("COSMOS_ENDPOINT", "http://localhost:8081")]));
    let text = resolved(&Case { options: &[], variables: two, file: None, expected: "" });
    let words = "AZURE_COSMOS_CONNECTION_STRING and COSMOS_ENDPOINT name two different accounts";
    assert!(text.starts_with("Failure { code: 2") && text.contains(words), "{text}");
    assert!(!text.contains("c2VjcmV0"), "{text}");
    let options = &["--endpoint", "https://typed/"];
    let text = resolved(&Case { options, variables: two, file: None, expected: "" });
    assert_eq!(text, "https://typed (from --endpoint) key=- duroxide/duroxide");
}

#[test]
fn a_connection_string_in_place_of_an_endpoint_is_refused_and_not_repeated() {
    let string = "AccountEndpoint=https://a/;AccountKey=c2VjcmV0;";
    for pasted in [string, "https://a/;AccountKey=c2VjcmV0;", "https://me:c2VjcmV0@a/"] {
        let options: &'static [&str] = Box::leak(Box::new(["--endpoint", pasted]));
        let variables: &'static [(&str, &str)] = Box::leak(Box::new([("COSMOS_ENDPOINT", pasted)]));
        for (options, variables, name) in
            [(options, KEYS_IN_ENVIRONMENT, "--endpoint"), (&[], variables, "COSMOS_ENDPOINT")]
        {
            let text = resolved(&Case { options, variables, file: None, expected: "" });
            assert!(text.starts_with("Failure { code: 2") && text.contains(name), "{text}");
            assert!(!text.contains("c2VjcmV0"), "{text}");
        }
    }
}

const ENTRA_IN_ENVIRONMENT: &[(&str, &str)] =
    &[("PERIHELION_ENTRA", "1"), ("COSMOS_ENDPOINT", "https://env/"), ("COSMOS_KEY", "c2VjcmV0")];

#[test]
fn entra_replaces_every_key_except_the_key_of_an_option() {
    let check = |options, variables, file, expected: &str| {
        let text = resolved(&Case { options, variables, file, expected: "" });
        assert!(text.contains(expected), "{expected} is not in {text}");
    };
    let typed = &["--endpoint", "https://typed/", "--entra", ""];
    check(typed, &[], None, "https://typed (from --endpoint) key=entra ");
    check(typed, KEYS_IN_ENVIRONMENT, None, " key=entra ");
    check(&["--endpoint", "http://localhost:1/", "--entra", ""], &[], None, " key=entra ");
    check(&[], ENTRA_IN_ENVIRONMENT, None, "https://env (from COSMOS_ENDPOINT) key=entra ");
    check(&["--key", "a2V5"], ENTRA_IN_ENVIRONMENT, None, " key=a2V5 ");
    for off in ["0", "false", "No", " "] {
        let variables = Box::leak(Box::new([("PERIHELION_ENTRA", off), ("COSMOS_ENDPOINT", "https://env/")]));
        check(&[], variables, None, " key=- ");
    }
    let file = "endpoint = \"https://file/\"\nentra = true";
    check(&["--entra", ""], &[], Some(file), "https://file (from /srv/x/perihelion.toml) key=entra ");
    check(
        &[],
        &[("PERIHELION_ENTRA", "1")],
        Some(file),
        "https://file (from /srv/x/perihelion.toml) key=entra ",
    );
    check(&["--key", "a2V5"], &[], Some(file), " key=a2V5 ");
    let variable = &[("PERIHELION_ENTRA", "1")];
    check(&[], variable, Some("endpoint = \"https://file/\"\nkey = \"a2V5\""), " key=entra ");
    // The server of `perihelion dev` and a data directory are used as without the variable.
    check(&[], variable, None, "(the local default) key=well-known ");
    check(&["--data", "d"], variable, None, "d (from --data) key=- ");
}

#[test]
fn entra_without_an_endpoint_or_beside_a_key_is_refused() {
    let refused = |options, variables, file, words: &str| {
        let text = resolved(&Case { options, variables, file, expected: "" });
        assert!(text.starts_with("Failure { code: 2") && text.contains(words), "{text}");
        assert!(!text.contains("c2VjcmV0"), "{text}");
    };
    let string = "AccountEndpoint=https://a/;AccountKey=c2VjcmV0;";
    refused(&["--entra", ""], &[], None, "--entra is given, and no account");
    refused(&["--entra", "", "--data", "d"], &[], None, "not named by an endpoint");
    refused(Box::leak(Box::new(["--connection-string", string, "--entra", ""])), &[], None, "not named by");
    refused(&["--endpoint", "https://a/", "--key", "c2VjcmV0", "--entra", ""], &[], None, "both a key and");
    let variables = [("PERIHELION_ENTRA", "1"), ("COSMOS_CONNECTION_STRING", string)];
    refused(&[], Box::leak(Box::new(variables)), None, "PERIHELION_ENTRA asks for Entra ID");
    refused(&[], &[], Some("data = \"d\"\nentra = true"), "entra = true, and no endpoint");
    let both = "endpoint = \"https://a/\"\nkey = \"c2VjcmV0\"\nentra = true";
    refused(&[], &[], Some(both), "has a key, and entra = true");
}

/// Story of a bug: `perihelion.toml` of a cloned repository, with `entra = true`, made a command act
/// with the user's identity on the account of that file.
#[test]
fn a_file_alone_does_not_switch_entra_on() {
    let file = Some("endpoint = \"https://file/\"\nentra = true");
    for variables in [&[][..], &[("PERIHELION_ENTRA", "0")], KEYS_IN_ENVIRONMENT] {
        let text = resolved(&Case { options: &[], variables, file, expected: "" });
        let expected = "https://file (from /srv/x/perihelion.toml) needs Entra ID";
        assert!(text.starts_with("Failure { code: 2") && text.contains(expected), "{text}");
        assert!(text.contains("give --entra or set PERIHELION_ENTRA=1"), "{text}");
    }
}
