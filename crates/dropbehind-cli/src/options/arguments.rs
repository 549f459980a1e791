//! The table as arguments of a command line.

use super::{Kind, OptionSpec, Value};
use crate::error::shown;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

impl OptionSpec {
    /// The option as clap knows it.
    pub(super) fn arg(&'static self) -> Arg {
        let mut arg = Arg::new(self.name)
            .long(self.name)
            .help(self.meaning)
            .help_heading("Data options");
        if !self.details.is_empty() {
            arg = arg.long_help(format!("{}.\n\n{}", self.meaning, self.details));
        }
        if let Some(short) = self.short {
            arg = arg.short(short);
        }
        if let Kind::Flag = self.kind {
            return arg.action(ArgAction::SetTrue);
        }
        arg = arg.value_name(self.value_name).value_parser(Parser(self));
        if let Kind::Pattern { .. } = self.kind {
            arg = arg.action(ArgAction::Append);
        }
        if let Kind::Bytes { .. } | Kind::Seconds { .. } | Kind::Count { .. } = self.kind {
            // So that -1 is told to be no number, and not to be no option.
            arg = arg.allow_hyphen_values(true);
        }
        if let Kind::Path = self.kind {
            arg = arg.value_hint(clap::ValueHint::FilePath);
        }
        if let Some(default) = self.default {
            arg = arg.default_value(default);
        }
        if let Some(env) = self.env {
            arg = arg.env(env);
        }
        arg
    }
}

/// Whether a variable has this value, and no word of the command line does.
fn is_from_variable(name: &str, value: &OsStr) -> bool {
    let ends_with_it = |word: &OsString| word.as_bytes().ends_with(value.as_bytes());
    std::env::var_os(name).is_some_and(|text| text == value)
        && !std::env::args_os().any(|word| ends_with_it(&word))
}

/// Lets clap read values through the table.
#[derive(Clone)]
struct Parser(&'static OptionSpec);

impl TypedValueParser for Parser {
    type Value = Value;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        text: &OsStr,
    ) -> Result<Value, clap::Error> {
        self.0.parse(text).map_err(|reason| {
            let option = arg.map_or_else(|| self.0.name.to_owned(), ToString::to_string);
            let place = match self.0.env.filter(|name| is_from_variable(name, text)) {
                Some(name) => format!("in the variable {name} (as for '{option}')"),
                None => format!("for '{option}'"),
            };
            let mut error = clap::Error::raw(
                ErrorKind::ValueValidation,
                format!("invalid value '{}' {place}: {reason}\n", shown(text)),
            );
            error = error.with_cmd(command);
            error.insert(
                ContextKind::InvalidArg,
                ContextValue::String(self.0.name.to_owned()),
            );
            error
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        match self.0.kind {
            Kind::Words { words, .. } => Some(Box::new(words.iter().map(PossibleValue::new))),
            _ => None,
        }
    }
}
