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

pub(crate) use names;
