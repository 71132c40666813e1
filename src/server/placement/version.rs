//! Microversions: which form of an answer a client understands. A client says it with each request, as
//! `OpenStack-API-Version: placement 1.29`; one that does not is taken for the oldest.
//!
//! Each handler compares the version with the one that brought a key, a parameter or a path: `call.version >=
//! Version(19)`. Parameters and paths of later versions are as unknown as if they did not exist.

use axum::http::{HeaderMap, StatusCode};

use super::fault::{Fault, repeated};

/// The header of requests and of answers, in the lower case that `HeaderMap` wants.
pub(super) const HEADER: &str = "openstack-api-version";

/// The service that the header may speak of, among others: `compute 2.90, placement 1.29` is one header for two
/// services.
pub(super) const SERVICE: &str = "placement";

/// A microversion, by what stands behind `1.`. There is no 2.x.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) u16);

impl Version {
    /// 1.0: what requests without the header get.
    pub(super) const MIN: Self = Self(0);
    /// 1.39, which is also `latest`.
    pub(super) const MAX: Self = Self(39);

    /// The one that a request asks for. Of several headers, or several entries in one, the first for Placement counts;
    /// headers that are not ASCII are passed over.
    ///
    /// # Errors
    /// 406 for a version that is not offered, 400 for text that is no version.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Fault> {
        let said = headers.get_all(HEADER).iter();
        let said = said.filter_map(|value| value.to_str().ok());
        let services = said.flat_map(|value| value.split(','));
        let mut versions = services.filter_map(|service| {
            let (name, version) = service.trim().split_once(char::is_whitespace)?;
            name.eq_ignore_ascii_case(SERVICE).then(|| version.trim())
        });
        versions.next().map_or(Ok(Self::MIN), Self::parse)
    }

    /// Reads `latest` or `1.N`.
    fn parse(text: &str) -> Result<Self, Fault> {
        if text == "latest" {
            return Ok(Self::MAX);
        }
        let numbers = text.split_once('.');
        let numbers = numbers.and_then(|(major, minor)| Some((number(major)?, number(minor)?)));
        match numbers {
            Some((1, minor)) if minor <= Self::MAX.0 => Ok(Self(minor)),
            Some(_) => Err(Fault::version(text)),
            None => Err(Fault::new(
                StatusCode::BAD_REQUEST,
                format!("invalid version string: {}", repeated(text)),
            )),
        }
    }
}

/// A decimal number without sign. One that is too large for its type is some version that is not offered, rather than
/// none.
fn number(text: &str) -> Option<u16> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u16::MAX))
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "1.{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue, StatusCode};

    use super::{HEADER, Version};

    fn asked(text: &'static str) -> Result<Version, StatusCode> {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_static(text));
        Version::of(&headers).map_err(|fault| fault.status())
    }

    #[test]
    fn a_client_is_answered_in_the_version_that_it_names() {
        assert_eq!(Version::of(&HeaderMap::new()).unwrap(), Version(0));
        assert_eq!(asked("placement 1.29"), Ok(Version(29)));
        assert_eq!(asked("compute 2.90, Placement latest"), Ok(Version(39)));
        assert_eq!(asked("compute 2.90"), Ok(Version(0)));
    }

    #[test]
    fn what_is_no_version_is_told_from_one_that_is_not_offered() {
        for text in ["placement 1.40", "placement 2.0", "placement 1.99999"] {
            assert_eq!(asked(text), Err(StatusCode::NOT_ACCEPTABLE), "{text}");
        }
        for text in [
            "placement 1",
            "placement 1.x",
            "placement 1.-1",
            "placement .",
        ] {
            assert_eq!(asked(text), Err(StatusCode::BAD_REQUEST), "{text}");
        }
    }
}
