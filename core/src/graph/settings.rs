//! Settings: a struct of what a graph may set, whose fields are the entry's parameters.

/// Declares a struct of settings. Each field is a parameter of a catalog entry, in the words of
/// [`int`](crate::graph::int) and the functions beside it less the name, and perhaps one of
/// [`ParamSpec`](crate::graph::ParamSpec) behind it; fields behind `..` are
/// none, and have a default. Behind the struct may stand further parameters of the entry, which are
/// not numbers, times, sizes or flags.
///
/// The struct gets `PARAMETERS` for [`Entry::parameters`](crate::graph::Entry::parameters),
/// `Default`, and `read`, which gives what a graph says, or else the defaults.
///
/// ```
/// use core::time::Duration;
/// use xk_core::graph::optional;
/// xk_core::settings! {
///     /// How a layer repeats.
///     pub struct Settings {
///         wait: Duration = duration(Duration::from_secs(1), "the time before it is sent again"),
///         calls_max: usize = int(1..=1_048_576, 16_384, "how many calls may wait at once"),
///         ..
///         /// The host that is asked, if there is one.
///         host: Option<String> = None,
///     }
/// }
/// assert_eq!(Settings::PARAMETERS[1].name, "calls_max");
/// assert_eq!(Settings::default().calls_max, 16_384);
/// ```
#[macro_export]
macro_rules! settings {
    (
        $(#[$attribute:meta])*
        $vis:vis struct $name:ident {
            $($field:ident: $type:ty = $kind:ident $given:tt $(.$and:ident())?,)+
            $(.. $($(#[$further:meta])* $other:ident: $other_type:ty = $usual:expr,)+)?
        }
        $([$($more:expr),+ $(,)?])?
    ) => {
        $(#[$attribute])*
        $vis struct $name {
            $(#[doc = $crate::settings!(@doc $given)] $vis $field: $type,)+
            $($($(#[$further])* $vis $other: $other_type,)+)?
        }

        impl $name {
            /// The parameters of the catalog entry.
            pub(crate) const PARAMETERS: &'static [$crate::graph::ParamSpec] = &[
                $($crate::settings!(@spec $field $kind $given)$(.$and())?,)+
                $($($more,)+)?
            ];

            /// Reads the values of a graph, or else the defaults.
            pub(crate) fn read(
                build: &$crate::graph::Build<'_>,
            ) -> Result<Self, $crate::graph::BuildError> {
                Ok(Self {
                    $($field: build.$kind(stringify!($field))?,)+
                    $($($other: $usual,)+)?
                })
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($field: $crate::settings!(@default $given),)+
                    $($($other: $usual,)+)?
                }
            }
        }
    };
    (@spec $field:ident $kind:ident ($($given:expr),+ $(,)?)) => {
        $crate::graph::$kind(stringify!($field), $($given),+)
    };
    (@default ($bounds:expr, $default:expr, $doc:expr $(,)?)) => { $default };
    (@default ($default:expr, $doc:expr $(,)?)) => { $default };
    (@doc ($bounds:expr, $default:expr, $doc:expr $(,)?)) => { $doc };
    (@doc ($default:expr, $doc:expr $(,)?)) => { $doc };
}
