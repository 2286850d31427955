//! Declares enumerations whose variants have a word each.

/// Declares an enumeration, the word of each variant, and the list of all variants. The attributes
/// before `impl` are those of the words and the list.
macro_rules! words {
    (
        $(#[$of_enum:meta])*
        pub enum $enum:ident {
            $($(#[$of_variant:meta])* $variant:ident = $word:literal,)+
        }
        $(#[$of_words:meta])*
        impl
    ) => {
        $(#[$of_enum])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $enum {
            $($(#[$of_variant])* $variant,)+
        }

        $(#[$of_words])*
        impl $enum {
            pub(crate) const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            pub(crate) const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}
pub(crate) use words;
