//! What programs say about their use of a file, with posix_fadvise(2).

use dropbehind_linux::{FileAdvice, Usage, file_link};
use dropbehind_policy::{FileNumber, Residency};

use super::Files;

impl Files {
    /// Heeds advice. A file has one stream, whoever uses it: so advice counts only while nobody
    /// else is known to have used the file, and until it is opened again.
    pub(crate) fn advised(&mut self, said: FileAdvice) {
        if !self.programs.has(said.process) {
            return;
        }
        let Some(link) = file_link(said.process, said.descriptor) else {
            return;
        };
        let Some(&number) = self.by_id.get(&link.id) else {
            return;
        };
        let Some(open) = self.files.get(&number) else {
            return;
        };
        let by_its_user = open.users.iter().all(|user| user.process == said.process);
        let Some(user) = open.user(said.process).filter(|_| by_its_user) else {
            return;
        };
        let Some(mut settings) = user.settings else {
            return;
        };
        match said.usage {
            Usage::Random => self.set_random(number, true),
            Usage::Normal | Usage::Sequential => self.set_random(number, false),
            Usage::Once => {
                let mode = open.advised_over.unwrap_or(open.settings.mode);
                let mode_rule = open.mode_rule.clone();
                settings.mode.residency = Residency::Drop;
                self.serve(number, settings, &mode_rule);
                if let Some(open) = self.files.get_mut(&number) {
                    (open.advised_over, open.mode_rule) = (Some(mode), mode_rule);
                    if let Some(user) = open.user_mut(said.process) {
                        user.settings = Some(settings);
                    }
                }
                self.show_facts(number);
            }
        }
    }

    pub(super) fn set_random(&mut self, number: FileNumber, random: bool) {
        if let Some(open) = self.files.get_mut(&number)
            && open.random != random
        {
            open.random = random;
            if let Some(observed) = &open.observed {
                observed.advised(random);
            }
        }
    }
}
