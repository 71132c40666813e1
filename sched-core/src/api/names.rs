//! Enums that are listed whole somewhere: the list is made from the enum, so that none of its variants is missing.

/// An enum without data, and `ALL` of its variants in their order.
macro_rules! names {
    ($(#[$of_type:meta])* $vis:vis $type:ident: $($(#[$of_name:meta])* $name:ident,)*) => {
        $(#[$of_type])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis enum $type {
            $($(#[$of_name])* $name,)*
        }

        impl $type {
            /// All of them, in their order.
            $vis const ALL: [Self; [$(stringify!($name)),*].len()] = [$(Self::$name,)*];
        }
    };
}

/// An enum of events with their data. What a variant's doc comment says is also in `WHEN`, for the page about them; the
/// name of an event is that of its variant.
macro_rules! events {
    ($(#[$of_type:meta])* $vis:vis $type:ident: $(
        $(#[doc = $when:literal])+
        $name:ident $(($of_tuple:ty))? $({ $($(#[$of_field:meta])* $field:ident: $data:ty,)* })?,
    )*) => {
        $(#[$of_type])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        $vis enum $type {
            $(
                $(#[doc = $when])+
                $name $(($of_tuple))? $({ $($(#[$of_field])* $field: $data,)* })?,
            )*
        }

        impl $type {
            /// The name of each event, and when it happens.
            #[cfg(any(test, feature = "test-support"))]
            $vis const WHEN: &[(&str, &str)] = &[$((stringify!($name), concat!($($when),+)),)*];

            /// The name without the data.
            $vis fn name(&self) -> &'static str {
                match self {
                    $(Self::$name { .. } => stringify!($name),)*
                }
            }
        }
    };
}

pub(crate) use {events, names};
