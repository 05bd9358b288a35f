//! Tells callgrind to count from here on, or to stop it (Valgrind manual, "Client requests").

/// Whether there is a way to tell it on this machine.
pub(crate) const IS_KNOWN: bool = cfg!(all(target_arch = "x86_64", target_os = "linux"));

/// `CALLGRIND_TOGGLE_COLLECT`: the second request of the tool "CT".
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
const TOGGLE: u64 = (b'C' as u64) << 24 | (b'T' as u64) << 16 | 2;

/// Has callgrind begin to count, or cease; without it, nothing.
#[inline]
pub(crate) fn toggle() {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        let request = [TOGGLE, 0, 0, 0, 0, 0];
        // SAFETY: the four rotations turn `rdi` by 128 bits in all, and so not at all, and exchanging
        // a register with itself does nothing. Under valgrind the sequence hands it the address of
        // six words, in `rax`, which live beyond it and are read alone; the answer is put into `rdx`,
        // which is said to be overwritten.
        unsafe {
            core::arch::asm!(
                "rol rdi, 3",
                "rol rdi, 13",
                "rol rdi, 61",
                "rol rdi, 51",
                "xchg rbx, rbx",
                in("rax") request.as_ptr(),
                inout("rdx") 0_u64 => _,
                options(nostack),
            );
        }
    }
}
