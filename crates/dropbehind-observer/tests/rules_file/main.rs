//! The rules file: what it says, what is wrong with it, and what it decides
//! about real files, processes and control groups.

mod decisions;
mod fuzz;
mod mistakes;
mod processes;
mod reading;
