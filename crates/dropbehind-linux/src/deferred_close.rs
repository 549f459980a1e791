//! Closing descriptors without waiting for the work of their last close.
//!
//! The last close of a tracepoint's events waits until no processor is in the tracepoint any
//! more, 20 to 50 ms (`tracepoint_synchronize_unregister`), and an ending process waits with
//! it. A kernel worker takes down an io_uring (`io_ring_exit_work`, io_uring/io_uring.c) and
//! closes the files that are registered with it, since Linux 5.1.

use rustix::io_uring::{IoringRegisterOp, io_uring_params, io_uring_register, io_uring_setup};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Closes descriptors, whose memory must not be mapped any more. Waits if the kernel's worker
/// cannot be used.
pub(crate) fn close_deferred(descriptors: Vec<OwnedFd>) {
    let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    // SAFETY: the ring is never entered and never mapped. It only holds the files, which the
    // kernel reads from `numbers` during the call.
    let ring = unsafe {
        io_uring_setup(1, &mut io_uring_params::default()).and_then(|ring| {
            let files = IoringRegisterOp::RegisterFiles;
            let count = numbers.len() as u32;
            io_uring_register(&ring, files, numbers.as_ptr().cast(), count)?;
            Ok(ring)
        })
    };
    // The ring's close is the last one, and doesn't wait.
    drop(descriptors);
    drop(ring);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_is_to_be_closed_is_closed() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        close_deferred(vec![writer.into()]);
        // The pipe ends once nobody has the other end open.
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn nothing_to_close_is_no_error() {
        close_deferred(Vec::new());
    }
}
