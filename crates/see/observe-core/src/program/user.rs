//! The user to run a program as.

use std::process::Command;

/// A user of the system's databases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Login name.
    pub name: String,
    /// User ID.
    pub uid: u32,
    /// ID of the primary group.
    pub gid: u32,
    /// IDs of all groups.
    pub groups: Vec<u32>,
    /// Home directory.
    pub home: String,
    /// Login shell.
    pub shell: String,
}

/// Why a user cannot be found.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// No user has this name or ID.
    #[error("unknown user `{0}`")]
    None(String),
    /// The databases cannot be queried.
    #[error("looking up the user `{name}`: {why}")]
    Ask {
        /// The requested user.
        name: String,
        /// The cause.
        why: String,
    },
}

impl User {
    /// Finds a user by name or ID. It runs `getent` and `id`, so that all configured databases count, and it
    /// also works in a program without shared libraries.
    ///
    /// # Errors
    /// The user does not exist, or the tools are missing.
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
        // A container may contain nothing but ncpu.
        let missing = Command::new("getent").arg("--version").output();
        if missing.is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
            let [users, groups] =
                ["/etc/passwd", "/etc/group"].map(|file| std::fs::read_to_string(file).unwrap_or_default());
            return User::listed(name, &users, &groups).ok_or_else(|| UserError::None(name.into()));
        }
        let Some(line) = ask("getent", &["passwd", name])? else { return Err(UserError::None(name.into())) };
        // passwd(5): name:password:UID:GID:GECOS:directory:shell
        let fields: Vec<&str> = line.lines().next().unwrap_or("").split(':').collect();
        let [name, _, uid, gid, _, home, shell] = fields[..] else {
            return Err(failed(format!("getent printed `{line}`")));
        };
        let number = |text: &str| text.parse::<u32>().map_err(|_| failed(format!("`{text}` is not an ID")));
        let groups = ask("id", &["-G", name])?.ok_or_else(|| failed("id does not know this user".into()))?;
        Ok(User {
            name: name.into(),
            uid: number(uid)?,
            gid: number(gid)?,
            groups: groups.split_whitespace().map(number).collect::<Result<_, _>>()?,
            home: home.into(),
            shell: shell.into(),
        })
    }

    /// Finds a user by name or ID in texts in the format of passwd(5) and group(5).
    fn listed(name: &str, users: &str, groups: &str) -> Option<User> {
        let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let found = fields
            .into_iter()
            .find(|fields| fields.len() == 7 && (fields[0] == name || fields[2] == name))?;
        let (login, gid) = (found[0], found[3].parse().ok()?);
        // group(5): name:password:GID:member,member
        let mut all = vec![gid];
        for line in groups.lines() {
            if let [_, _, gid, members] = line.split(':').collect::<Vec<_>>()[..]
                && members.split(',').any(|member| member == login)
            {
                all.extend(gid.parse::<u32>().ok().filter(|gid| !all.contains(gid)));
            }
        }
        Some(User {
            name: login.into(),
            uid: found[2].parse().ok()?,
            gid,
            groups: all,
            home: found[5].into(),
            shell: found[6].into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_in_the_files_where_nobody_can_be_asked() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbad:x:1\nncpu:x:477:478::/:/bin/false\n";
        let groups = "root:x:0:\nadm:x:4:ann,ncpu\nncpu:x:478:\ntwice:x:478:ncpu\n";
        let found = User::listed("ncpu", users, groups).unwrap();
        assert_eq!((found.uid, found.gid, found.groups.clone()), (477, 478, vec![478, 4]));
        assert_eq!(User::listed("477", users, groups), Some(found));
        assert_eq!((User::listed("bad", users, groups), User::listed("", users, groups)), (None, None));
    }
}
