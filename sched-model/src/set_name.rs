//! Names of instances that are members of a set, as `ciaoctl set` gives them.

/// A member of a set, by its name `SET.VERSION.NUMBER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetMember<'a> {
    /// The set.
    pub set: &'a str,
    /// Eight hexadecimal digits: of which file it was started.
    pub version: &'a str,
    /// From 0. Two versions may have the same number while a set is being updated.
    pub number: u32,
}

impl<'a> SetMember<'a> {
    /// The member that is called so; `None` for a name of another form, such as one that was given by hand.
    #[must_use]
    pub fn of(name: &'a str) -> Option<Self> {
        let (set, rest) = name.split_once('.')?;
        let (version, number) = rest.split_once('.')?;
        let is_version = version.len() == 8 && version.bytes().all(|it| it.is_ascii_hexdigit());
        let is_number = !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit());
        if set.is_empty() || !is_version || !is_number {
            return None;
        }
        Some(Self {
            set,
            version,
            number: number.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::SetMember;

    #[test]
    fn members_are_known_by_their_names() {
        let web = SetMember {
            set: "web",
            version: "0123abcd",
            number: 7,
        };
        assert_eq!(SetMember::of("web.0123abcd.7"), Some(web));
        for other in [
            "web",
            "web.1",
            "web.0123abcg.1",
            "web.0123abcd.x",
            "web.0123abcd.+1",
            ".0123abcd.1",
        ] {
            assert_eq!(SetMember::of(other), None, "{other}");
        }
    }
}
