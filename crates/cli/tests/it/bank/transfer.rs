//! A transfer as a client remembers it: enough to send it again with the same bytes.

use perihelion_client::{Client, DistributedWriteTransaction, Error, Etag, Patch};
use perihelion_testkit::Random;

use super::{ACCOUNTS, Account};
use crate::crashing::{Places, distinct_numbers};

/// Half of the transfers are between accounts whose number is below this, so that transfers conflict.
const BUSY_ACCOUNTS: u32 = 24;

/// Money from the first account to the others.
#[derive(Debug, Clone)]
pub(super) struct Transfer {
    pub(super) changes: Vec<BalanceChange>,
}

/// The change of the balance of one account.
#[derive(Debug, Clone)]
pub(super) struct BalanceChange {
    pub(super) account: u32,
    pub(super) amount: i64,
    /// The balance after the transfer, and the etag of the account from which it was computed; `None`
    /// if the server adds the amount.
    pub(super) computed: Option<(i64, Etag)>,
}

impl Transfer {
    /// A transfer between two to five accounts. The first gives one to five units to each of the others.
    pub(super) fn random(random: &mut Random) -> Transfer {
        let bound = if random.one_in(2) { BUSY_ACCOUNTS } else { ACCOUNTS };
        let accounts = distinct_numbers(random, 2, 5, bound);
        let change = |account: &u32, amount| BalanceChange { account: *account, amount, computed: None };
        let mut changes = vec![change(&accounts[0], 0)];
        for account in &accounts[1..] {
            let amount = 1 + random.below(5) as i64;
            changes[0].amount -= amount;
            changes.push(change(account, amount));
        }
        Transfer { changes }
    }

    /// Computes the balances from a snapshot. Returns whether there is enough money.
    pub(super) fn compute(&mut self, accounts: &[(Account, Etag)]) -> bool {
        for (change, (account, etag)) in self.changes.iter_mut().zip(accounts) {
            change.computed = Some((account.balance + change.amount, etag.clone()));
        }
        self.changes.iter().all(|change| change.computed.as_ref().is_some_and(|(balance, _)| *balance >= 0))
    }

    /// The transaction of the transfer, with a new token.
    pub(super) fn build(&self, client: &Client, places: &Places) -> DistributedWriteTransaction {
        let mut transaction = client.write_transaction();
        for change in &self.changes {
            add(&mut transaction, places, change).expect("a valid operation");
        }
        transaction
    }
}

fn add(
    transaction: &mut DistributedWriteTransaction,
    places: &Places,
    change: &BalanceChange,
) -> Result<(), Error> {
    let ((container, key), id) = (places.place(change.account), change.account.to_string());
    match &change.computed {
        Some((balance, etag)) => {
            let account = Account { id: id.clone(), pk: key.to_owned(), balance: *balance };
            transaction.replace_if_match(container, key, &id, &account, etag)?;
        }
        None => {
            let patch = Patch::new().increment("/balance", change.amount)?;
            let has_enough = format!("FROM c WHERE c.balance >= {}", -change.amount);
            let patch = if change.amount < 0 { patch.with_condition(has_enough) } else { patch };
            transaction.patch(container, key, &id, &patch)?;
        }
    }
    Ok(())
}
