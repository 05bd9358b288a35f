// Made by `xk rpcgen` from greeter.x: change that instead.

#![allow(dead_code, unreachable_pub, clippy::all, reason = "generated")]

use xk_rpc::xdr::{self, Xdr};
use xk_rpc::{Call, Client, Error, Refusal, Reply, Service};

/// `NAME_OCTETS_MAX`.
pub const NAME_OCTETS_MAX: u32 = 255;

/// `struct greeting`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Greeting {
    /// `to`: `string<255>`.
    pub to: xdr::Text<255>,
    /// `times`: `unsigned int`.
    pub times: u32,
}

impl Xdr for Greeting {
    const OCTETS_MIN: usize = 8;
    fn encode<S: xdr::Sink>(&self, sink: &mut S) -> Result<(), xdr::EncodeError> {
        self.to.encode(sink)?;
        self.times.encode(sink)
    }

    fn decode(decoder: &mut xdr::Decoder<'_>) -> Result<Self, xdr::DecodeError> {
        Ok(Self {
            to: Xdr::decode(decoder)?,
            times: Xdr::decode(decoder)?,
        })
    }
}

/// The program `GREETER`.
pub const GREETER: u32 = 536870919;

/// Numbers: of version 1 of the program `GREETER`, and of its procedures.
pub mod greeter_1 {
    /// The version.
    pub const VERSION: u32 = 1;
    /// `string<> GREET(greeting)`.
    pub const GREET: u32 = 1;
    /// `unsigned hyper COUNT(void)`.
    pub const COUNT: u32 = 2;
}

/// Procedures of version 1 of the program `GREETER`.
pub trait Greeter1 {
    /// `string<> GREET(greeting)`.
    fn greet(&self, call: &Call<'_>, argument: Greeting) -> Result<xdr::Text, Refusal>;
    /// `unsigned hyper COUNT(void)`.
    fn count(&self, call: &Call<'_>) -> Result<u64, Refusal>;
}

/// Serves a [`Greeter1`].
#[derive(Clone, Debug)]
pub struct Greeter1Server<T>(pub T);

impl<T: Greeter1 + Send + 'static> Service for Greeter1Server<T> {
    fn program(&self) -> Option<(u32, u32)> {
        Some((GREETER, greeter_1::VERSION))
    }

    fn call(&self, call: &Call<'_>) -> Result<Reply, Refusal> {
        match call.procedure() {
            greeter_1::GREET => {
                let (argument,) = call.arguments()?;
                let result = T::greet(&self.0, call, argument)?;
                Reply::of(&result)
            }
            greeter_1::COUNT => {
                let () = call.arguments()?;
                let result = T::count(&self.0, call)?;
                Reply::of(&result)
            }
            0 => Ok(Reply::empty()),
            _ => Err(Refusal::NoProcedure),
        }
    }
}

/// Calls version 1 of the program `GREETER`.
#[derive(Clone, Debug)]
pub struct Greeter1Client(Client);

impl Greeter1Client {
    /// Calls whomever `client` calls.
    pub fn new(client: &Client) -> Self {
        Self(client.program(GREETER, greeter_1::VERSION))
    }

    /// The client without types.
    pub fn client(&self) -> &Client {
        &self.0
    }

    /// `string<> GREET(greeting)`.
    pub fn greet(&self, argument: Greeting) -> Result<xdr::Text, Error> {
        self.0.invoke(greeter_1::GREET, &argument)
    }

    /// `unsigned hyper COUNT(void)`.
    pub fn count(&self) -> Result<u64, Error> {
        self.0.invoke(greeter_1::COUNT, &())
    }
}
