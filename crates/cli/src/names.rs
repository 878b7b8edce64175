//! Checks of the names and ids that a person types. A name that the service cannot have is wrong usage,
//! and is refused in our words before a request is sent. Some of these names would change the URL of the
//! request, and the service would refuse each of them with a different error.

use std::fmt;

use duroxide_cdb::ContainerName;

use crate::exit::Failure;
use crate::output::text::cut;

/// The most characters in the name of a database or a container. The provider has the same limit.
const NAME_CHARS_MAX: usize = 255;

/// The most bytes in the id of an item.
const ITEM_ID_BYTES_MAX: usize = 1023;

const ITEM_ID_RULE: &str = "an id has 1 to 1023 bytes, and none of the characters / and \\";

/// The most bytes in the id of a workflow, which is the partition key of its documents.
const INSTANCE_ID_BYTES_MAX: usize = 2048;

const INSTANCE_ID_RULE: &str = "the id of a workflow has at most 2048 bytes";

/// The most characters of a wrong name or id that a message repeats.
const SHOWN_CHARS_MAX: usize = 80;

const NAME_RULE: &str = "a name has 1 to 255 characters, none of them / \\ # ? or a control character, and no \
                         space at the end";

/// A name or an id that cannot exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WrongName {
    message: String,
    advice: String,
}

impl From<WrongName> for Failure {
    fn from(wrong: WrongName) -> Failure {
        Failure::usage(wrong.message, &wrong.advice)
    }
}

impl fmt::Display for WrongName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.message, self.advice)
    }
}

/// Checks the name of a database.
pub(crate) fn check_database(name: &str) -> Result<(), WrongName> {
    match is_name(name) {
        true => Ok(()),
        false => Err(WrongName {
            message: format!("{} cannot be the name of a database", shown(name)),
            advice: NAME_RULE.to_owned(),
        }),
    }
}

/// Checks the name of a container.
pub(crate) fn check_container(name: &str) -> Result<(), WrongName> {
    if is_name(name) {
        return Ok(());
    }
    let advice = match name.parse::<ContainerName>() {
        Ok(ContainerName { database, container }) if is_name(&database) && is_name(&container) => {
            format!("name the database by itself: --database {database} --container {container}")
        }
        Ok(_) | Err(_) => NAME_RULE.to_owned(),
    };
    Err(WrongName { message: format!("{} cannot be the name of a container", shown(name)), advice })
}

/// Parses DATABASE/CONTAINER, for the command line.
pub(crate) fn container_name(text: &str) -> Result<ContainerName, String> {
    let name: ContainerName = text.parse()?;
    check_database(&name.database)
        .and_then(|()| check_container(&name.container))
        .map_err(|wrong| wrong.to_string())?;
    Ok(name)
}

/// Checks the id of an item.
pub(crate) fn check_item_id(id: &str) -> Result<(), WrongName> {
    let message = match id {
        "" => "the id of the item is empty".to_owned(),
        _ if id.len() > ITEM_ID_BYTES_MAX => too_long(id),
        _ if id.contains(['/', '\\']) => format!("{} cannot be the id of an item", shown(id)),
        _ => return Ok(()),
    };
    Err(WrongName { message, advice: ITEM_ID_RULE.to_owned() })
}

/// Checks the id of a workflow that is to be started.
pub(crate) fn check_instance_id(id: &str) -> Result<(), WrongName> {
    match id.len() > INSTANCE_ID_BYTES_MAX {
        false => Ok(()),
        true => Err(WrongName { message: too_long(id), advice: INSTANCE_ID_RULE.to_owned() }),
    }
}

fn too_long(id: &str) -> String {
    format!("the id {} has {} bytes", shown(id), id.len())
}

/// The beginning of a name or an id, in quotes.
fn shown(text: &str) -> String {
    format!("{:?}", cut(text, SHOWN_CHARS_MAX))
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.chars().count() <= NAME_CHARS_MAX
        && !name.contains(['/', '\\', '#', '?'])
        && !name.contains(char::is_control)
        && !name.ends_with(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_with_its_database_is_split_in_the_advice() {
        let advice = |name: &str| check_container(name).unwrap_err().advice;
        assert_eq!(advice("shop/orders"), "name the database by itself: --database shop --container orders");
        for name in ["", "a/b/c", "/b", "a\\b", "a?", "a#", "a ", "a\n", &"x".repeat(256)] {
            assert_eq!(advice(name), NAME_RULE, "{name:?}");
            assert!(check_database(name).is_err(), "{name:?}");
        }
        for name in ["orders", " a", "a b", "é", &"é".repeat(255)] {
            assert_eq!(check_container(name), Ok(()), "{name:?}");
        }
    }

    #[test]
    fn an_id_has_a_limit_in_bytes_and_a_long_one_is_cut_in_the_message() {
        assert_eq!(check_item_id(&"x".repeat(1023)), Ok(()));
        assert_eq!(check_instance_id(&"x".repeat(2048)), Ok(()));
        let item = check_item_id(&"é".repeat(512)).unwrap_err();
        assert!(item.message.contains("has 1024 bytes") && item.message.len() < 300, "{}", item.message);
        assert!(check_instance_id(&"x".repeat(2049)).is_err());
        for id in ["", "a/b", "a\\b"] {
            assert!(check_item_id(id).is_err(), "{id:?}");
        }
    }
}
