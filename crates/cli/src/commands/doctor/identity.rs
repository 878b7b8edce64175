//! The check of an identity of Entra ID: where its token comes from, when the token expires, and what
//! the account says to it.

use std::time::{SystemTime, UNIX_EPOCH};

use duroxide_cdb::Check;
use perihelion_wire::transport::{Endpoint, Response};

use crate::account::{FORBIDDEN_ENTRA, RawProof};
use crate::entra::{Entra, Granted, NoToken, scope_of};
use crate::output::text::{age, cut, time};

const SUBJECT: &str = "credential";

/// The most characters of a name from the service's message that a finding shows.
const NAME_CHARS_MAX: usize = 100;

/// The identity of the environment, with its token or the reason why it has none.
pub(super) struct Identity(Result<Granted, NoToken>);

impl Identity {
    /// Asks for a token for the account.
    pub(super) async fn of_process(account: &Endpoint) -> Identity {
        Identity(Entra::of_process().grant(&scope_of(account)).await)
    }

    /// The proof for the probe. Without a token the probe is sent without a proof, because its answer
    /// still shows the network and the clock.
    pub(super) fn proof(&self) -> RawProof {
        let header = self.0.as_ref().ok().and_then(Granted::authorization);
        header.map_or(RawProof::None, RawProof::Token)
    }

    /// Judges the answer to the probe.
    pub(super) fn judge(&self, answer: &Response, now: SystemTime) -> Check {
        let granted = match &self.0 {
            Ok(granted) => granted,
            Err(no_token) => {
                let finding = format!("no token of Entra ID: {}", no_token.why());
                return Check::problem(SUBJECT, finding, no_token.advice());
            }
        };
        let origin = granted.origin;
        let body = String::from_utf8_lossy(answer.body());
        match answer.status().as_u16() {
            200 => {
                let expiry = expiry(granted, now);
                Check::ok(SUBJECT, format!("a token of Entra ID from {origin}, {expiry}"))
            }
            401 => Check::problem(
                SUBJECT,
                format!("the account refuses the token from {origin} (401)"),
                "Check that the identity is of the account's tenant (AZURE_TENANT_ID, `az account show`), and the \
                 clock above. A server of ours accepts tokens with --auth any",
            ),
            403 => forbidden(origin, &body),
            404 => Check::problem(
                SUBJECT,
                "the server at this endpoint is not a Cosmos DB account (404)",
                "Check the endpoint",
            ),
            status => Check::problem(SUBJECT, format!("the account answers {status}"), "Try again later"),
        }
    }
}

/// When a token expires.
fn expiry(granted: &Granted, now: SystemTime) -> String {
    let ms = |time: SystemTime| {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    };
    let expires_on = ms(granted.token.expires_on);
    match granted.token.expires_on > now {
        true => format!("which expires {} ({})", age(expires_on, ms(now)), time(expires_on)),
        false => format!("which expired {} ago ({})", age(expires_on, ms(now)), time(expires_on)),
    }
}

/// The check of a refusal with 403: the account knows the identity and permits it nothing, or its firewall
/// refuses this machine.
fn forbidden(origin: crate::entra::TokenOrigin, body: &str) -> Check {
    if body.contains("firewall") {
        return Check::problem(
            SUBJECT,
            "the account's firewall refuses this machine (403)",
            "Add this machine's address to the account's firewall, or use its private endpoint",
        );
    }
    let principal = named(body, "principal [").map(|id| format!(", principal {id},")).unwrap_or_default();
    let action = named(body, "action [").map(|action| format!(": it lacks {action}")).unwrap_or_default();
    let mut advice = FORBIDDEN_ENTRA.to_owned();
    advice[..1].make_ascii_uppercase();
    Check::problem(
        SUBJECT,
        format!("the identity from {origin}{principal} has no data role on this account (403){action}"),
        format!(
            "{advice}. Roles such as Contributor or Owner permit no access to data. A new role counts after some minutes"
        ),
    )
}

/// The name in brackets in the service's message. `start` is the word before it, with the opening bracket.
fn named(body: &str, start: &str) -> Option<String> {
    let (_, rest) = body.split_once(start)?;
    let (name, _) = rest.split_once(']')?;
    Some(cut(name, NAME_CHARS_MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use duroxide_cdb::CheckResult;
    use perihelion_client::credential::AccessToken;

    use super::*;
    use crate::entra::TokenOrigin;

    fn judged(status: u16, body: &'static str) -> (CheckResult, String, String) {
        let token = AccessToken::new("s3cret", UNIX_EPOCH + Duration::from_secs(1_800_003_599));
        let identity = Identity(Ok(Granted { token, origin: TokenOrigin::AzureCli }));
        let answer = http::Response::builder().status(status).body(body.into()).unwrap();
        let check = identity.judge(&answer, UNIX_EPOCH + Duration::from_secs(1_800_000_000));
        assert!(!format!("{check:?}").contains("s3cret"), "{check:?}");
        (check.result, check.finding, check.advice.unwrap_or_default())
    }

    #[test]
    fn an_accepted_token_is_shown_with_its_origin_and_expiry() {
        let (result, finding, _) = judged(200, "{}");
        assert_eq!(result, CheckResult::Ok);
        let expected =
            "a token of Entra ID from the Azure CLI (az), which expires in 59m (2027-01-15T08:59:59.000Z)";
        assert_eq!(finding, expected);
    }

    #[test]
    fn a_missing_role_is_named_with_the_principal_and_the_action() {
        let body = "{\"code\":\"Forbidden\",\"message\":\"Request blocked by Auth shop : Request for Read \
                    DatabaseAccount is blocked because principal [1-2-3] on OrgId [4] does not have required RBAC \
                    permissions to perform action [Microsoft.DocumentDB/databaseAccounts/readMetadata] on resource \
                    [/].\"}";
        let (result, finding, advice) = judged(403, body);
        assert_eq!(result, CheckResult::Problem);
        let expected = "the identity from the Azure CLI (az), principal 1-2-3, has no data role on this account \
                        (403): it lacks Microsoft.DocumentDB/databaseAccounts/readMetadata";
        assert_eq!(finding, expected);
        assert!(advice.contains("Cosmos DB Built-in Data Contributor"), "{advice}");
    }

    #[test]
    fn a_firewall_and_a_refused_token_have_findings_of_their_own() {
        let (_, finding, _) =
            judged(403, "Request originated from IP 1.2.3.4 is blocked by your account firewall");
        assert!(finding.contains("firewall"), "{finding}");
        let (_, finding, advice) = judged(401, "");
        assert!(finding.contains("refuses the token") && advice.contains("tenant"), "{finding} {advice}");
    }
}
