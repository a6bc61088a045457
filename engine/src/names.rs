//! Enums whose variants have names in the contract.

macro_rules! named {
    ($(#[$attribute:meta])* $Enum:ident { $($(#[$of_variant:meta])* $variant:ident $name:literal),* $(,)? }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $Enum { $($(#[$of_variant])* $variant),* }
        impl $Enum {
            pub const ALL: &[$Enum] = &[$($Enum::$variant),*];
            pub fn name(self) -> &'static str {
                match self { $($Enum::$variant => $name),* }
            }
        }
    };
}

pub(crate) use named;
