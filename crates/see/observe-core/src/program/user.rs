//! Somebody else to run a program as.

use std::process::Command;

/// A user, as the system's databases tell of him.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Login name.
    pub name: String,
    /// User ID.
    pub uid: u32,
    /// ID of his first group.
    pub gid: u32,
    /// IDs of all his groups.
    pub groups: Vec<u32>,
    /// Home directory.
    pub home: String,
    /// Login shell.
    pub shell: String,
}

/// Why a user cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// Nobody has this name or number.
    #[error("there is no user `{0}`")]
    None(String),
    /// The databases cannot be asked.
    #[error("asking for the user `{name}`: {why}")]
    Ask {
        /// Who was asked for.
        name: String,
        /// What went wrong.
        why: String,
    },
}

impl User {
    /// Finds a user by name or number. `getent` and `id` are asked, so that every database counts that the system has,
    /// and a program without shared libraries can ask too.
    ///
    /// # Errors
    /// There is none, or the tools are missing.
    pub fn find(name: &str) -> Result<User, UserError> {
        let failed = |why: String| UserError::Ask { name: name.into(), why };
        // A name that begins with `-` would be an option.
        if name.is_empty() || name.starts_with('-') || name.contains(':') {
            return Err(UserError::None(name.into()));
        }
        let ask = |program: &str, arguments: &[&str]| -> Result<Option<String>, UserError> {
            let out = Command::new(program)
                .args(arguments)
                .output()
                .map_err(|e| failed(format!("{program}: {e}")))?;
            Ok(out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_string()))
        };
        let Some(line) = ask("getent", &["passwd", name])? else { return Err(UserError::None(name.into())) };
        // passwd(5): name:password:UID:GID:GECOS:directory:shell
        let fields: Vec<&str> = line.lines().next().unwrap_or("").split(':').collect();
        let [name, _, uid, gid, _, home, shell] = fields[..] else {
            return Err(failed(format!("getent said `{line}`")));
        };
        let number = |text: &str| text.parse::<u32>().map_err(|_| failed(format!("`{text}` is no ID")));
        let groups = ask("id", &["-G", name])?.ok_or_else(|| failed("id does not know him".into()))?;
        Ok(User {
            name: name.into(),
            uid: number(uid)?,
            gid: number(gid)?,
            groups: groups.split_whitespace().map(number).collect::<Result<_, _>>()?,
            home: home.into(),
            shell: shell.into(),
        })
    }
}
