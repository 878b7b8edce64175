//! Tests of `--entra`: where a token comes from, what is printed when a token is missing or refused,
//! and that neither tokens nor secrets are printed. The server has a key that the commands do not
//! know, so a command without a token fails. In most tests the server accepts any token
//! (`--auth any`).

mod token_service;

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use perihelion_testkit::ScratchDirectory;
use serde_json::Value;

use self::token_service::TokenService;
use crate::program::{RunningServer, command, text};

/// The token that the services of these tests give.
const TOKEN: &str = "eyJ0.t0ken-of_tests.x";

/// A client secret with characters that a form has to encode.
const SECRET: &str = "s3cret+&=~";

const KEY: &str = "YSBrZXkgZm9yIHRlc3RzLCBub3QgYSBzZWNyZXQ=";

/// An address without a listener, in place of the metadata service of virtual machines (IMDS). The
/// machine of the tests may have that service.
const NO_IMDS: (&str, &str) = ("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:1");

const TENANT: (&str, &str) = ("AZURE_TENANT_ID", "contoso.example");
const CLIENT: (&str, &str) = ("AZURE_CLIENT_ID", "client-1");

/// A server, and the directory of its certificates.
struct EntraServer {
    scratch: ScratchDirectory,
    endpoint: String,
    _server: RunningServer,
}

impl EntraServer {
    /// Starts the server with this value of `--auth`.
    fn start(auth: &str) -> EntraServer {
        let scratch = ScratchDirectory::new();
        let mut server = command(&scratch, &["dev", "--port", "0", "--no-dashboard", "--auth", auth]);
        let server = RunningServer::start(server.env("PERIHELION_KEY", KEY));
        let endpoint = server.endpoint();
        EntraServer { scratch, endpoint, _server: server }
    }

    /// A command on the server's account, with these variables.
    fn command(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut command = command(&self.scratch, arguments);
        command.args(["--endpoint", &self.endpoint, "--entra"]).envs(variables.iter().copied());
        command
    }

    /// Lists containers. The command must end with this exit code, and its standard error must
    /// contain this text.
    fn list(&self, variables: &[(&str, &str)], code: i32, error: &str) {
        check(&mut self.command(&["container", "list"], variables), code, error);
    }
}

/// Runs a command, and checks that it prints no token and no secret.
fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the binary runs");
    let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
    for secret in [TOKEN, SECRET, KEY] {
        assert!(!printed.contains(secret), "{printed}");
    }
    output
}

/// Runs a command, and checks its exit code and that its standard error contains this text.
fn check(command: &mut Command, code: i32, error: &str) {
    let output = run(command);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{}{stderr}", text(&output.stdout));
    assert!(stderr.contains(error), "{error} is not in {stderr}");
}

fn token_json() -> String {
    format!(r#"{{"token_type":"Bearer","expires_in":3599,"access_token":"{TOKEN}"}}"#)
}

/// Writes a program `az` into the directory. It runs these lines of a shell script.
#[cfg(unix)]
fn write_az(directory: &std::path::Path, lines: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = directory.join("az");
    std::fs::write(&path, format!("#!/bin/sh\n{lines}\n")).expect("a script");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a program");
}

#[test]
fn an_application_gets_its_token_with_a_client_secret() {
    let (server, authority) = (EntraServer::start("any"), TokenService::start("200 OK", &token_json()));
    let host = ("AZURE_AUTHORITY_HOST", authority.url());
    server.list(&[TENANT, CLIENT, ("AZURE_CLIENT_SECRET", SECRET), host], 0, "");
    let request = authority.request();
    assert!(request.starts_with("POST /contoso.example/oauth2/v2.0/token HTTP/1.1\r\n"), "{request}");
    let form = "grant_type=client_credentials&client_id=client-1&scope=https%3A%2F%2F127.0.0.1%2F.default\
                &client_secret=s3cret%2B%26%3D~";
    assert!(request.ends_with(form), "{request}");
}

/// The authority gets the client secret, so its certificate must be trusted. There is no exception for
/// an authority on this machine. Our own server stands in for the authority, and refuses the request.
#[test]
fn an_authority_with_an_untrusted_certificate_gets_no_secret() {
    let server = EntraServer::start("any");
    let host = server.endpoint.replace("http:", "https:");
    let identity = [TENANT, CLIENT, ("AZURE_CLIENT_SECRET", SECRET), ("AZURE_AUTHORITY_HOST", &host)];
    let origin = "no token of Entra ID: the client secret (AZURE_CLIENT_SECRET): ";
    server.list(&identity, 1, &format!("{origin}{}: the server's certificate", host.trim_end_matches('/')));
    let authority = command(&server.scratch, &["cert", "path"]).output().expect("the binary runs");
    let mut trusting = server.command(&["container", "list"], &identity);
    trusting.env("SSL_CERT_FILE", text(&authority.stdout).trim());
    check(&mut trusting, 1, &format!("{origin}refused (4"));
}

#[test]
fn a_workload_gets_its_token_with_a_federated_token() {
    let (server, authority) = (EntraServer::start("any"), TokenService::start("200 OK", &token_json()));
    let file = server.scratch.path().join("federated");
    std::fs::write(&file, "federated.token\n").expect("a file");
    let file = file.display().to_string();
    let host = ("AZURE_AUTHORITY_HOST", authority.url());
    server.list(&[TENANT, CLIENT, ("AZURE_FEDERATED_TOKEN_FILE", &file), host], 0, "");
    let request = authority.request();
    assert!(
        request.contains("client-assertion-type%3Ajwt-bearer&client_assertion=federated.token"),
        "{request}"
    );
    let missing = [TENANT, CLIENT, ("AZURE_FEDERATED_TOKEN_FILE", "/nowhere/at/all"), host];
    server.list(&missing, 1, "workload identity (AZURE_FEDERATED_TOKEN_FILE): /nowhere/at/all");
}

#[test]
fn a_managed_identity_gives_its_token() {
    let server = EntraServer::start("any");
    let body = format!(r#"{{"access_token":"{TOKEN}","expires_on":"4102444800","resource":"x"}}"#);
    let app = TokenService::start("200 OK", &body);
    let endpoint = format!("{}/msi/token", app.url());
    server.list(&[("IDENTITY_ENDPOINT", &endpoint), ("IDENTITY_HEADER", SECRET), CLIENT], 0, "");
    let request = app.request();
    let target =
        "GET /msi/token?api-version=2019-08-01&resource=https%3A%2F%2F127.0.0.1&client_id=client-1 HTTP/1.1";
    assert!(
        request.starts_with(target) && request.contains(&format!("x-identity-header: {SECRET}")),
        "{request}"
    );

    let machine = TokenService::start("200 OK", &body);
    server.list(&[("AZURE_POD_IDENTITY_AUTHORITY_HOST", machine.url())], 0, "");
    let request = machine.request();
    let target = "GET /metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2F127.0.0.1 HTTP/1.1";
    assert!(request.starts_with(target) && request.contains("metadata: true"), "{request}");
}

#[cfg(unix)]
#[test]
fn the_azure_cli_is_asked_if_the_machine_has_no_identity() {
    let server = EntraServer::start("any");
    let bin = ScratchDirectory::new();
    let path = bin.path().display().to_string();
    let expires_on = 4_102_444_800_u64;
    write_az(
        bin.path(),
        &format!(
            "echo \"$PWD $*\" > {path}/asked\n\
             echo '{{\"accessToken\":\"{TOKEN}\",\"expiresOn\":\"2026-01-01 00:00:00\",\"expires_on\":{expires_on}}}'"
        ),
    );
    let asked = || std::fs::read_to_string(bin.path().join("asked")).expect("az was asked");
    let arguments = "account get-access-token --output json --scope https://127.0.0.1/.default";
    server.list(&[("PATH", &path), NO_IMDS], 0, "");
    assert_eq!(asked(), format!("/ {arguments}\n"), "az runs in the root directory");
    server.list(&[("PATH", &path), NO_IMDS, TENANT], 0, "");
    assert_eq!(asked(), format!("/ {arguments} --tenant contoso.example\n"));
    // A machine outside Azure may have another service at the address of IMDS.
    let other = TokenService::start("404 Not Found", "<html>");
    server.list(&[("PATH", &path), ("AZURE_POD_IDENTITY_AUTHORITY_HOST", other.url())], 0, "");

    write_az(bin.path(), &format!("echo '{TOKEN}'; echo \"ERROR: Please run 'az login'.\" >&2; exit 1"));
    server.list(&[("PATH", &path), NO_IMDS], 1, "the Azure CLI (az): Please run 'az login'. Run `az login`");
    write_az(bin.path(), &format!("echo 'token: {TOKEN}'"));
    server.list(&[("PATH", &path), NO_IMDS], 1, "the answer is not the JSON of a token");
}

/// Story of a bug: the virtual machine did not have the identity that AZURE_CLIENT_ID names, and the
/// command ran as the user of `az login`.
#[cfg(unix)]
#[test]
fn an_identity_that_the_machine_does_not_have_is_not_replaced_by_the_user_of_az() {
    let server = EntraServer::start("any");
    let bin = ScratchDirectory::new();
    let path = bin.path().display().to_string();
    let token = format!(r#"{{"accessToken":"{TOKEN}","expires_on":4102444800}}"#);
    write_az(bin.path(), &format!("echo x > {path}/asked\necho '{token}'"));
    let body = r#"{"error":"invalid_request","error_description":"Identity not found"}"#;
    let machine = TokenService::start("400 Bad Request", body);
    let variables = [("PATH", path.as_str()), ("AZURE_POD_IDENTITY_AUTHORITY_HOST", machine.url())];
    let refused = "managed identity (169.254.169.254): refused (400): invalid_request: Identity not found. \
                   Check AZURE_CLIENT_ID";
    server.list(&[&variables[..], &[CLIENT]].concat(), 1, refused);
    assert!(!bin.path().join("asked").exists(), "az was asked");
    // Without AZURE_CLIENT_ID, the same answer says that the machine has no identity at all.
    server.list(&variables, 0, "");
    assert!(bin.path().join("asked").exists(), "az was not asked");
}

/// Another identity would make the command act as somebody else.
#[cfg(unix)]
#[test]
fn an_identity_that_is_refused_is_not_replaced_by_another() {
    let server = EntraServer::start("any");
    let bin = ScratchDirectory::new();
    write_az(bin.path(), &format!("echo '{{\"accessToken\":\"{TOKEN}\",\"expires_on\":4102444800}}'"));
    let path = bin.path().display().to_string();
    let body = format!(
        r#"{{"error":"invalid_client","error_description":"AADSTS7000215: Invalid secret {SECRET}.\r\nTrace: 1"}}"#
    );
    let authority = TokenService::start("401 Unauthorized", &body);
    let host = ("AZURE_AUTHORITY_HOST", authority.url());
    let variables = [TENANT, CLIENT, ("AZURE_CLIENT_SECRET", SECRET), host, ("PATH", &path), NO_IMDS];
    let refused = "the client secret (AZURE_CLIENT_SECRET): refused (401): invalid_client: AADSTS7000215";
    server.list(&variables, 1, refused);
    server.list(&variables, 1, "Check AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET");
    let busy = TokenService::start("503 Service Unavailable", "");
    let variables = [("AZURE_POD_IDENTITY_AUTHORITY_HOST", busy.url()), ("PATH", &path)];
    server.list(&variables, 1, "managed identity (169.254.169.254): refused (503). Try again");
}

#[test]
fn an_environment_without_an_identity_says_what_to_set() {
    let server = EntraServer::start("any");
    let variables = [NO_IMDS, ("PATH", "/nowhere/at/all")];
    server.list(
        &variables,
        1,
        "is not in PATH. Install the Azure CLI and run `az login`, or set AZURE_TENANT_ID",
    );
    server.list(&variables, 1, "managed identity (169.254.169.254): http://127.0.0.1:1: ");
    server.list(&[("AZURE_CLIENT_SECRET", SECRET)], 1, "AZURE_TENANT_ID is not set");
}

#[test]
fn the_error_for_an_azure_account_without_a_key_suggests_entra() {
    let scratch = ScratchDirectory::new();
    let list = |endpoint| command(&scratch, &["container", "list", "--endpoint", endpoint]);
    check(&mut list("https://shop.documents.azure.com/"), 2, "give --entra to use Entra ID");
    let output = run(&mut list("https://shop.invalid/"));
    assert!(!text(&output.stderr).contains("--entra"), "{}", text(&output.stderr));
}

/// A service that refuses everything stands in for an account whose keys are turned off.
#[test]
fn the_error_for_an_account_whose_keys_are_off_suggests_entra() {
    let scratch = ScratchDirectory::new();
    let message = "Local Authorization is disabled. Use an AAD token to authorize all requests.";
    let body = format!(r#"{{"code":"Unauthorized","message":"{message}"}}"#);
    let account = TokenService::start("401 Unauthorized", &body);
    let typed = ["--endpoint", account.url(), "--key", KEY];
    let list = [&["container", "list"], &typed[..]].concat();
    check(&mut command(&scratch, &list), 1, "the account has no keys: give --entra");
    let doctor = [&["doctor", "-o", "json"], &typed[..]].concat();
    let output = run(&mut command(&scratch, &doctor));
    assert_eq!(credential(&output).0, "problem");
    assert!(text(&output.stdout).contains("Give --entra"), "{}", text(&output.stdout));
}

/// No data role permits creating a container. Here an injected fault refuses the request.
#[test]
fn the_error_for_a_container_that_entra_may_not_create_suggests_the_azure_cli() {
    let (server, authority) = (EntraServer::start("any"), TokenService::start("200 OK", &token_json()));
    let identity =
        [TENANT, CLIENT, ("AZURE_CLIENT_SECRET", SECRET), ("AZURE_AUTHORITY_HOST", authority.url())];
    let rule = r#"{"operation":"database","status":403,"count":1}"#;
    let manage = ["manage", "POST", "faults", rule, "--endpoint", &server.endpoint, "--key", KEY];
    check(&mut command(&server.scratch, &manage), 0, "");
    let create = ["container", "create", "shop/orders", "--key-path", "/id"];
    check(&mut server.command(&create, &identity), 1, "`az cosmosdb sql container create`");
}

/// No data role permits reading the throughput. Here an injected fault refuses that request. The rest
/// of the container is shown nevertheless.
#[test]
fn a_container_is_shown_without_the_throughput_that_entra_may_not_read() {
    let (server, authority) = (EntraServer::start("any"), TokenService::start("200 OK", &token_json()));
    let identity =
        [TENANT, CLIENT, ("AZURE_CLIENT_SECRET", SECRET), ("AZURE_AUTHORITY_HOST", authority.url())];
    let create = ["container", "create", "shop/orders", "--key-path", "/id"];
    check(&mut server.command(&create, &identity), 0, "created");
    let rule = r#"{"operation":"offer","status":403,"subStatus":5300}"#;
    let manage = ["manage", "POST", "faults", rule, "--endpoint", &server.endpoint, "--key", KEY];
    check(&mut command(&server.scratch, &manage), 0, "");
    let output = run(&mut server.command(&["container", "show", "shop/orders"], &identity));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("not shown to this credential") && shown.contains("partition key"), "{shown}");
}

/// A `perihelion.toml` in the current directory must not decide to use the user's identity.
#[test]
fn a_variable_turns_on_entra_and_a_configuration_file_alone_does_not() {
    let (server, authority) = (EntraServer::start("any"), TokenService::start("200 OK", &token_json()));
    let identity =
        [TENANT, CLIENT, ("AZURE_CLIENT_SECRET", SECRET), ("AZURE_AUTHORITY_HOST", authority.url())];
    let list = || {
        let mut list = command(&server.scratch, &["container", "list"]);
        list.envs(identity).current_dir(server.scratch.path());
        list
    };
    check(list().env("COSMOS_ENDPOINT", &server.endpoint), 1, "check the key");
    check(list().env("COSMOS_ENDPOINT", &server.endpoint).env("PERIHELION_ENTRA", "1"), 0, "");
    assert!(authority.new_requests() > 0);
    let file = format!("[account]\nendpoint = \"{}\"\nentra = true\n", server.endpoint);
    std::fs::write(server.scratch.path().join("perihelion.toml"), file).expect("a file");
    check(&mut list(), 2, "needs Entra ID, and a file cannot decide to use your identity");
    assert_eq!(authority.new_requests(), 0, "a token was asked for before the user asked for Entra ID");
    check(list().env("PERIHELION_ENTRA", "1"), 0, "");
    check(list().arg("--entra"), 0, "");
    check(
        &mut server.command(&["manage", "GET", "counters"], &identity),
        2,
        "takes its key, and not Entra ID",
    );
}

#[test]
fn the_error_for_a_refused_token_names_the_tenant_and_doctor_names_the_source_of_the_token() {
    let (server, authority) = (EntraServer::start("key"), TokenService::start("200 OK", &token_json()));
    let identity =
        [TENANT, CLIENT, ("AZURE_CLIENT_SECRET", SECRET), ("AZURE_AUTHORITY_HOST", authority.url())];
    server.list(&identity, 1, "check that the identity is of the account's tenant");
    let output = run(&mut server.command(&["doctor", "-o", "json"], &identity));
    let (result, finding) = credential(&output);
    assert_eq!((result.as_str(), output.status.code()), ("problem", Some(1)), "{finding}");
    assert!(finding.contains("refuses the token from the client secret (AZURE_CLIENT_SECRET)"), "{finding}");
}

/// The result and the finding about the credential, from the JSON of `doctor`.
fn credential(output: &Output) -> (String, String) {
    let checks: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    let mut all = checks.as_array().expect("a list").iter();
    let check = all.find(|check| check["subject"] == "credential").expect("a check of the credential");
    let of = |name: &str| check[name].as_str().unwrap_or_default().to_owned();
    (of("result"), of("finding"))
}

#[test]
fn doctor_says_where_the_token_is_from_and_when_it_expires() {
    let (server, authority) = (EntraServer::start("any"), TokenService::start("200 OK", &token_json()));
    let identity =
        [TENANT, CLIENT, ("AZURE_CLIENT_SECRET", SECRET), ("AZURE_AUTHORITY_HOST", authority.url())];
    let output = run(&mut server.command(&["doctor", "-o", "json"], &identity));
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let (result, finding) = credential(&output);
    let expected = "a token of Entra ID from the client secret (AZURE_CLIENT_SECRET), which expires in 59m (";
    assert!(result == "ok" && finding.starts_with(expected), "{finding}");

    let output = run(&mut server.command(&["doctor", "-o", "json"], &[NO_IMDS, ("PATH", "/nowhere")]));
    let (result, finding) = credential(&output);
    assert_eq!((result.as_str(), output.status.code()), ("problem", Some(1)), "{finding}");
    assert!(finding.contains("is not in PATH"), "{finding}");
    assert!(text(&output.stdout).contains("agrees with that of the service"), "the clock is checked too");
}

#[test]
fn the_dashboard_uses_entra() {
    let (server, authority) = (EntraServer::start("any"), TokenService::start("200 OK", &token_json()));
    let identity =
        [TENANT, CLIENT, ("AZURE_CLIENT_SECRET", SECRET), ("AZURE_AUTHORITY_HOST", authority.url())];
    let mut dashboard = server.command(&["dashboard", "--address", "127.0.0.1:0"], &identity);
    let mut child = dashboard.stdout(Stdio::piped()).spawn().expect("the binary runs");
    let output = BufReader::new(child.stdout.take().expect("standard output is piped"));
    let line = output.lines().next().expect("a line").expect("a line");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(line.starts_with("Dashboard  http://127.0.0.1:"), "{line}");
}
