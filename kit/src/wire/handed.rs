//! Devices that another process has opened, and that a kernel goes on with in its place.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::{Cell, RefCell};

/// Devices that another process hands over, put beside a kernel before its protocols are built. A
/// wire takes the device that was opened for it, but no arrivals from that until the kernel goes
/// on: both processes have the device meanwhile.
#[derive(Default)]
pub struct HandedDevices {
    left: RefCell<Vec<(String, Box<dyn Any>)>>,
    goes_on: Cell<bool>,
}

impl HandedDevices {
    /// Devices with the names of the protocols for which they were opened.
    pub fn new(devices: Vec<(String, Box<dyn Any>)>) -> Self {
        Self { left: RefCell::new(devices), goes_on: Cell::new(false) }
    }

    /// Takes the device of the protocol of this name, if it is a `T`.
    pub fn take<T: 'static>(&self, name: &str) -> Option<T> {
        let mut left = self.left.borrow_mut();
        let at = left.iter().position(|(owner, device)| owner == name && device.is::<T>())?;
        left.swap_remove(at).1.downcast().ok().map(|device| *device)
    }

    /// The first that no protocol has taken: whose it is.
    pub fn untaken(&self) -> Option<String> {
        self.left.borrow().first().map(|(owner, _)| owner.clone())
    }

    /// From now on arrivals are this kernel's.
    pub fn go_on(&self) {
        self.goes_on.set(true);
    }

    /// Whether arrivals are this kernel's.
    pub fn is_going_on(&self) -> bool {
        self.goes_on.get()
    }
}
