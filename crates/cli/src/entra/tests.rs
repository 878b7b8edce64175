//! Tests of the plan: which identity the environment means, that no secret is shown, and that later
//! tokens come from where the first came from.

use super::*;

/// The place from which the plan for these variables gets its tokens, or its failure.
fn planned(variables: &[(&str, &str)]) -> String {
    let find =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let entra = Entra::new(Environment::read(&find), AzureCli::default());
    let plan = entra.environment.plan();
    assert!(!format!("{entra:?} {plan:?}").contains("s3cret"), "{entra:?}");
    match plan {
        Ok(Plan::ClientGrant(grant)) => grant.origin().to_string(),
        Ok(Plan::IdentityEndpoint(_)) => TokenOrigin::IdentityEndpoint.to_string(),
        Ok(Plan::Search(_)) => "search".to_owned(),
        Err(failure) => failure.to_string(),
    }
}

#[test]
fn the_first_identity_that_the_environment_names_is_used() {
    let tenant = ("AZURE_TENANT_ID", "t");
    let client = ("AZURE_CLIENT_ID", "c");
    let secret = ("AZURE_CLIENT_SECRET", "s3cret");
    let file = ("AZURE_FEDERATED_TOKEN_FILE", "/token");
    let endpoint = ("IDENTITY_ENDPOINT", "http://localhost:42356/msi/token");
    let header = ("IDENTITY_HEADER", "s3cret");
    for (variables, expected) in [
        (&[tenant, client, secret, file, endpoint, header][..], "the client secret (AZURE_CLIENT_SECRET)"),
        (&[tenant, client, file, endpoint, header], "workload identity (AZURE_FEDERATED_TOKEN_FILE)"),
        (&[tenant, client, endpoint, header], "managed identity (IDENTITY_ENDPOINT)"),
        (&[tenant, client], "search"),
        (&[], "search"),
        (&[("AZURE_CLIENT_SECRET", " ")], "search"),
    ] {
        assert_eq!(planned(variables), expected);
    }
}

/// An identity that is named in part must not lead to another identity.
#[test]
fn an_identity_that_is_named_in_part_is_refused() {
    let tenant = ("AZURE_TENANT_ID", "t");
    let client = ("AZURE_CLIENT_ID", "c");
    let secret = ("AZURE_CLIENT_SECRET", "s3cret");
    let authority = |host| ("AZURE_AUTHORITY_HOST", host);
    for (variables, expected) in [
        (&[secret][..], "AZURE_TENANT_ID is not set"),
        (&[secret, tenant], "AZURE_CLIENT_ID is not set"),
        (&[("AZURE_FEDERATED_TOKEN_FILE", "/token"), client], "AZURE_TENANT_ID is not set"),
        (&[("IDENTITY_ENDPOINT", "http://localhost/msi")], "IDENTITY_HEADER is not set"),
        (&[("IDENTITY_ENDPOINT", "msi"), ("IDENTITY_HEADER", "s3cret")], "IDENTITY_ENDPOINT is not a URL"),
        (&[secret, client, ("AZURE_TENANT_ID", "t/../x")], "AZURE_TENANT_ID is not the id of a tenant"),
        (&[secret, client, tenant, authority("http://login.example")], "AZURE_AUTHORITY_HOST is not https"),
        (&[secret, client, tenant, authority("https://a/b")], "AZURE_AUTHORITY_HOST is not a URL of a host"),
        (&[("AZURE_POD_IDENTITY_AUTHORITY_HOST", "x")], "AZURE_POD_IDENTITY_AUTHORITY_HOST is not a URL"),
    ] {
        let text = planned(variables);
        assert!(text.starts_with("no token of Entra ID: ") && text.contains(expected), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }
}

#[test]
fn the_header_of_a_token_is_hidden_and_can_be_read_by_a_server() {
    let token = AccessToken::new("s3cret.a-b_c=", SystemTime::now());
    let granted = Granted { token, origin: TokenOrigin::AzureCli };
    let header = granted.authorization().unwrap();
    assert!(!format!("{granted:?} {header:?}").contains("s3cret"));
    let read = perihelion_wire::signature::Credentials::parse(header.to_str().unwrap());
    assert_eq!(read, Ok(perihelion_wire::signature::Credentials::EntraId("s3cret.a-b_c=".to_owned())));
}

#[test]
fn the_scope_is_that_of_the_account() {
    let endpoint = Endpoint::parse("https://shop.documents.azure.com:443/").unwrap();
    assert_eq!(scope_of(&endpoint), "https://shop.documents.azure.com/.default");
    assert_eq!(resource_of(&scope_of(&endpoint)), "https://shop.documents.azure.com");
}

#[cfg(unix)]
mod search {
    //! A metadata service over a socket, and a program `az`.

    use std::collections::VecDeque;
    use std::os::unix::fs::PermissionsExt;

    use perihelion_testkit::ScratchDirectory;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const TOKEN: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n\
                         {\"access_token\":\"t\",\"expires_in\":\"3600\"}";
    const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    const NO_IDENTITY: &str = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    /// The metadata service is being updated.
    const GONE: &str = "HTTP/1.1 410 Gone\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    const TOO_MANY: &str = "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    /// The connection is closed without an answer.
    const NO_ANSWER: &str = "";

    /// A metadata service that gives these answers, and then closes its port.
    async fn start_imds(answers: &[&'static str]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let mut answers: VecDeque<&str> = answers.iter().copied().collect();
        tokio::spawn(async move {
            while let Some(answer) = answers.pop_front() {
                let Ok((mut stream, _)) = listener.accept().await else { return };
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => request.push(byte),
                        Err(_) => break,
                    }
                }
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        url
    }

    /// The identity of a machine with this metadata service, and with a user of `az`.
    async fn entra(directory: &ScratchDirectory, answers: &[&'static str]) -> Entra {
        entra_with_client(directory, None, answers).await
    }

    /// The identity of a machine with this metadata service and with a user of `az`, if AZURE_CLIENT_ID
    /// has the value `client`.
    async fn entra_with_client(
        directory: &ScratchDirectory,
        client: Option<&str>,
        answers: &[&'static str],
    ) -> Entra {
        let program = directory.path().join("az");
        std::fs::write(&program, "#!/bin/sh\necho '{\"accessToken\":\"t\",\"expires_on\":4102444800}'\n")
            .expect("a script");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("a program");
        let imds = start_imds(answers).await;
        let variable = |name: &str| match name {
            "AZURE_POD_IDENTITY_AUTHORITY_HOST" => Some(imds.clone()),
            "AZURE_CLIENT_ID" => client.map(str::to_owned),
            _ => None,
        };
        Entra::new(Environment::read(&variable), AzureCli::at(&program))
    }

    async fn origin(entra: &Entra) -> Result<TokenOrigin, String> {
        let granted = entra.grant("https://shop.example/.default").await;
        granted.map(|granted| granted.origin).map_err(|failure| failure.to_string())
    }

    /// Story of a bug: the metadata service of a virtual machine did not answer a refresh, and a
    /// dashboard went on as the user of `az login`.
    #[tokio::test]
    async fn a_command_that_began_as_the_machine_does_not_go_on_as_the_user_of_az() {
        let directory = ScratchDirectory::new();
        for later in [NO_ANSWER, NOT_FOUND, NO_IDENTITY] {
            let entra = entra(&directory, &[TOKEN, later, TOKEN]).await;
            assert_eq!(origin(&entra).await, Ok(TokenOrigin::Imds));
            let failure = origin(&entra).await.expect_err("no token");
            assert!(failure.contains("the first token came from there"), "{failure}");
            assert_eq!(
                origin(&entra).await,
                Ok(TokenOrigin::Imds),
                "the next refresh asks the machine again"
            );
        }
    }

    #[tokio::test]
    async fn a_command_that_began_as_the_user_of_az_does_not_go_on_as_the_machine() {
        let directory = ScratchDirectory::new();
        for first in [NO_ANSWER, NOT_FOUND, NO_IDENTITY] {
            let entra = entra(&directory, &[first, TOKEN]).await;
            assert_eq!(origin(&entra).await, Ok(TokenOrigin::AzureCli));
            assert_eq!(origin(&entra).await, Ok(TokenOrigin::AzureCli));
        }
    }

    /// Story of a bug: the metadata service did not answer for a moment, and a dashboard with
    /// AZURE_CLIENT_ID acted as the user of `az login` for the rest of its life.
    #[tokio::test]
    async fn an_identity_that_is_named_is_not_replaced_by_the_user_of_az() {
        let directory = ScratchDirectory::new();
        // With an empty list of answers, the port is closed and refuses the connection.
        for answers in [&[NO_ANSWER, TOKEN][..], &[NOT_FOUND, TOKEN], &[NO_IDENTITY, TOKEN], &[]] {
            let entra = entra_with_client(&directory, Some("client-1"), answers).await;
            let failure = origin(&entra).await.expect_err("no token");
            assert!(
                failure.contains("Check AZURE_CLIENT_ID") && failure.contains("or unset it"),
                "{failure}"
            );
            if !answers.is_empty() {
                assert_eq!(origin(&entra).await, Ok(TokenOrigin::Imds));
            }
        }
    }

    /// Story of a bug: the metadata service was being updated and answered 410, and the command ran as the
    /// user of `az login`.
    #[tokio::test]
    async fn a_busy_metadata_service_is_not_an_absent_one() {
        let directory = ScratchDirectory::new();
        for (client, busy) in [(None, GONE), (None, TOO_MANY), (Some("client-1"), GONE)] {
            let entra = entra_with_client(&directory, client, &[busy, TOKEN]).await;
            let failure = origin(&entra).await.expect_err("no token");
            assert!(failure.contains("Try again"), "{failure}");
            assert_eq!(origin(&entra).await, Ok(TokenOrigin::Imds));
        }
    }

    /// A search that fails decides nothing: the machine may have an identity a moment later.
    #[tokio::test]
    async fn a_search_without_a_token_is_made_again() {
        let directory = ScratchDirectory::new();
        let entra = entra(&directory, &[NOT_FOUND, TOKEN]).await;
        let program = directory.path().join("az");
        std::fs::remove_file(&program).expect("the program");
        assert!(origin(&entra).await.is_err());
        assert_eq!(origin(&entra).await, Ok(TokenOrigin::Imds));
    }
}
