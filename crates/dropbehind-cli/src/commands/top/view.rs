//! What is shown, and what a key changes about it.

use super::columns::{DiskRow, FileRow};
use super::filter::Filter;
use super::history::Histories;
use super::order::SortOrder;
use super::speeds::Speeds;
use dropbehind_observer::snapshot::Snapshot;
use dropbehind_observer::status::Endpoint;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What is below the disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Panel {
    #[default]
    Files,
    /// What becomes of the files, and why.
    Reasons,
    Notes,
    Help,
}

/// What a key asks of the rest of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    Quit,
    Suspend,
    /// Another observer: this many places further on, round and round.
    Observer(usize),
}

/// All that is shown.
#[derive(Debug, Default)]
pub(super) struct View {
    /// The observers to choose from.
    pub(super) endpoints: Vec<Endpoint>,
    /// Which of them is shown.
    pub(super) current: usize,
    pub(super) sample: Option<Snapshot>,
    speeds: Speeds,
    histories: Histories,
    /// Which files are shown.
    pub(super) filter: Filter,
    pub(super) order: SortOrder,
    /// The first row that is shown.
    pub(super) scroll: usize,
    /// How many rows had room.
    pub(super) page: usize,
    pub(super) panel: Panel,
    /// A message about something that happened, until the next key.
    pub(super) message: Option<String>,
}

impl View {
    /// Begins with the first of these, of which nothing is known yet.
    pub(super) fn new(endpoints: Vec<Endpoint>) -> Self {
        Self {
            endpoints,
            ..Self::default()
        }
    }

    /// Shows another observer.
    pub(super) fn show(&mut self, index: usize) {
        self.current = index;
        self.sample = None;
        self.speeds = Speeds::default();
        self.histories = Histories::default();
        self.scroll = 0;
    }

    /// Takes a new sample of the observer that is shown.
    pub(super) fn take(&mut self, sample: Snapshot) {
        self.speeds = match &self.sample {
            Some(before) => Speeds::between(before, &sample),
            None => Speeds::default(),
        };
        self.histories.add(&self.speeds);
        self.sample = Some(sample);
    }

    /// Takes the new list of observers; the one that is shown stays.
    pub(super) fn update_endpoints(&mut self, endpoints: Vec<Endpoint>) {
        let shown = self.endpoints.get(self.current);
        let place = endpoints.iter().position(|one| Some(one) == shown);
        // If it is not listed any more, its feed is about to say so.
        if let Some(place) = place {
            self.current = place;
            self.endpoints = endpoints;
        }
    }

    pub(super) fn speeds(&self) -> &Speeds {
        &self.speeds
    }

    /// The files that the filter lets through, sorted.
    pub(super) fn files(&self) -> Vec<FileRow<'_>> {
        let files = self.sample.iter().flat_map(|sample| &sample.files);
        let mut rows: Vec<FileRow<'_>> = files
            .filter(|file| self.filter.shows(file))
            .map(|file| FileRow {
                file,
                history: self.histories.bars(&file.disk, &file.path),
                speed: self.speeds.of_file(&file.disk, &file.path),
            })
            .collect();
        self.order.sort(&mut rows);
        rows
    }

    /// The disks.
    pub(super) fn disks(&self) -> Vec<DiskRow<'_>> {
        let disks = self.sample.iter().flat_map(|sample| &sample.disks);
        disks
            .map(|disk| DiskRow {
                disk,
                speed: self.speeds.of_disk(&disk.name),
            })
            .collect()
    }

    /// What is not possible here.
    pub(super) fn notes(&self) -> &[String] {
        self.sample.as_ref().map_or(&[], |sample| &sample.notes)
    }

    /// Scrolls back if less than a page would be shown.
    pub(super) fn fit_rows(&mut self, rows: usize, page: usize) {
        self.page = page;
        self.scroll = self.scroll.min(rows.saturating_sub(page));
    }

    /// Acts on a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Wish {
        if key.kind == KeyEventKind::Release {
            return Wish::Nothing;
        }
        self.message = None;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let page = self.page.max(1);
        match key.code {
            KeyCode::Char('c') if control => return Wish::Quit,
            KeyCode::Char('z') if control => return Wish::Suspend,
            code if self.filter.takes(code, control) => self.scroll = 0,
            KeyCode::Char('/') => {
                self.filter.begin();
                self.panel = Panel::Files;
                self.scroll = 0;
            }
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Esc if self.panel == Panel::Files => return Wish::Quit,
            KeyCode::Esc => self.switch(Panel::Files),
            KeyCode::Tab => return Wish::Observer(1),
            KeyCode::BackTab => {
                return Wish::Observer(self.endpoints.len().saturating_sub(1));
            }
            KeyCode::Char('s' | '>') => self.sorted_anew(SortOrder::next),
            KeyCode::Char('S' | '<') => self.sorted_anew(SortOrder::previous),
            KeyCode::Char('r') => self.sorted_anew(|order| order.reversed ^= true),
            KeyCode::Char('i') => self.switch(Panel::Reasons),
            KeyCode::Char('n') => self.switch(Panel::Notes),
            KeyCode::Char('?' | 'h') => self.switch(Panel::Help),
            KeyCode::Down | KeyCode::Char('j') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => {
                self.scroll = self.scroll.saturating_add(page);
            }
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(page),
            KeyCode::Home | KeyCode::Char('g') => self.scroll = 0,
            KeyCode::End | KeyCode::Char('G') => self.scroll = usize::MAX,
            _ => {}
        }
        Wish::Nothing
    }

    fn sorted_anew(&mut self, change: impl FnOnce(&mut SortOrder)) {
        change(&mut self.order);
        self.panel = Panel::Files;
        self.scroll = 0;
    }

    /// Switches to this panel, or back to the files.
    fn switch(&mut self, panel: Panel) {
        self.panel = if self.panel == panel {
            Panel::Files
        } else {
            panel
        };
        self.scroll = 0;
    }
}
