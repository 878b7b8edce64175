//! Tests of the plan: which identity the environment means, and that no secret is shown.

use super::*;

/// The place from which the plan for these variables gets its tokens, or its failure.
fn planned(variables: &[(&str, &str)]) -> String {
    let find =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let entra = Entra { environment: Environment::read(&find) };
    let plan = entra.environment.plan();
    assert!(!format!("{entra:?} {plan:?}").contains("s3cret"), "{entra:?}");
    match plan {
        Ok(Plan::ClientGrant(grant)) => grant.origin().to_string(),
        Ok(Plan::IdentityEndpoint(_)) => Origin::IdentityEndpoint.to_string(),
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
    let granted = Granted { token, origin: Origin::AzureCli };
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
