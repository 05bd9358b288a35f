//! Arguments and results (RFC 1833, sections 2.1 and 3.1), in external data representation.

use xk_xdr::{DecodeError, Decoder, EncodeError, List, Opaque, Sink, Text, Xdr};

/// The program (section 2.1).
pub const PROGRAM: u32 = 100_000;
/// Port of the port mapper on UDP and TCP (section 3.1).
pub const PORT: u16 = 111;
/// The version whose mappings are ports.
pub const VERSION_PMAP: u32 = 2;
/// The first version whose mappings are universal addresses.
pub const VERSION_RPCB: u32 = 3;
/// The second.
pub const VERSION_RPCB4: u32 = 4;
/// The versions there are, in the order of their statistics (section 2.1, `RPCBVERS_2_STAT` and the
/// others).
pub const VERSIONS: [u32; 3] = [VERSION_PMAP, VERSION_RPCB, VERSION_RPCB4];

/// The procedures (sections 2.1 and 3.1). Some are not in all versions.
pub mod procedure {
    /// Nothing.
    pub const NULL: u32 = 0;
    /// Establishes a mapping.
    pub const SET: u32 = 1;
    /// Deletes mappings.
    pub const UNSET: u32 = 2;
    /// Asks for a program's place: a port in version 2 (`GETPORT`), a universal address after that
    /// (`GETADDR`).
    pub const GET: u32 = 3;
    /// All mappings.
    pub const DUMP: u32 = 4;
    /// Calls a procedure of this host and is silent on failure: `CALLIT`, in version 4 `BCAST`.
    pub const CALLIT: u32 = 5;
    /// Seconds since 1970.
    pub const GETTIME: u32 = 6;
    /// A universal address as the transport has it.
    pub const UADDR2TADDR: u32 = 7;
    /// The other way.
    pub const TADDR2UADDR: u32 = 8;
    /// Asks for the address of a program in exactly this version.
    pub const GETVERSADDR: u32 = 9;
    /// Calls a procedure of this host and tells of failures.
    pub const INDIRECT: u32 = 10;
    /// Asks for the addresses of a program on every transport.
    pub const GETADDRLIST: u32 = 11;
    /// Counts of requests so far.
    pub const GETSTAT: u32 = 12;
}

/// Procedures for which the statistics have room (section 2.1, `RPCBSTAT_HIGHPROC`).
pub const PROCEDURES: usize = 13;

/// Octets of an identifier, an address or an owner at most. The standard has no limit; longer ones
/// are garbage here.
pub const TEXT_MAX: u32 = 255;

/// An identifier, an address or an owner.
pub type Name = Text<TEXT_MAX>;

/// A structure of fields one behind the other.
macro_rules! structure {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl Xdr for $name {
            const OCTETS_MIN: usize = 0 $(+ <$type as Xdr>::OCTETS_MIN)*;

            fn encode<S: Sink>(&self, sink: &mut S) -> Result<(), EncodeError> {
                $(self.$field.encode(sink)?;)*
                Ok(())
            }

            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                Ok(Self { $($field: Xdr::decode(decoder)?,)* })
            }
        }
    };
}

structure! {
    /// A mapping of version 2 (section 3.1, `mapping`).
    Mapping {
        /// The program.
        program: u32,
        /// The program's version.
        version: u32,
        /// The number of the transport's protocol: 6 for TCP, 17 for UDP.
        protocol: u32,
        /// The port.
        port: u32,
    }
}

structure! {
    /// Arguments of a call in version 2 (section 3.1, `call_args`) and in the others (section 2.1,
    /// `rpcb_rmtcallargs`).
    CallArguments {
        /// The program.
        program: u32,
        /// The program's version.
        version: u32,
        /// The procedure.
        procedure: u32,
        /// The procedure's arguments.
        arguments: Opaque,
    }
}

structure! {
    /// Result of a call in version 2 (section 3.1, `call_result`).
    CallResult {
        /// The program's port.
        port: u32,
        /// The results.
        results: Opaque,
    }
}

structure! {
    /// Result of a call in the other versions (section 2.1, `rpcb_rmtcallres`).
    RemoteCallResult {
        /// The program's universal address.
        address: Name,
        /// The results.
        results: Opaque,
    }
}

structure! {
    /// A mapping of versions 3 and 4 (section 2.1, `rpcb`).
    Binding {
        /// The program.
        program: u32,
        /// The program's version.
        version: u32,
        /// The transport.
        netid: Name,
        /// The universal address.
        address: Name,
        /// Owner of the mapping.
        owner: Name,
    }
}

structure! {
    /// One address of a program (section 2.1, `rpcb_entry`).
    Entry {
        /// The universal address, as it is from where the question came.
        address: Name,
        /// The transport.
        netid: Name,
        /// 1 for datagrams, 3 for a stream that ends in order (`NC_TPI_CLTS`, `NC_TPI_COTS_ORD`).
        semantics: u32,
        /// The family of protocols.
        family: Name,
        /// The protocol.
        protocol: Name,
    }
}

structure! {
    /// An address as the transport has it (section 2.1, `netbuf`).
    NetBuf {
        /// Octets that it may have.
        octets_max: u32,
        /// Octets of the address.
        octets: Opaque<256>,
    }
}

structure! {
    /// Counts of requests for an address (section 2.1, `rpcbs_addrlist`).
    AddressCount {
        /// The program.
        program: u32,
        /// The program's version.
        version: u32,
        /// Times that it was found.
        successes: u32,
        /// Times that it was not found.
        failures: u32,
        /// The transport.
        netid: Name,
    }
}

structure! {
    /// Counts of calls of a procedure (section 2.1, `rpcbs_rmtcalllist`).
    CallCount {
        /// The program.
        program: u32,
        /// The program's version.
        version: u32,
        /// The procedure.
        procedure: u32,
        /// Calls with success.
        successes: u32,
        /// Calls without success.
        failures: u32,
        /// 1 if by `INDIRECT`, 0 if by `CALLIT`.
        indirect: u32,
        /// The transport.
        netid: Name,
    }
}

structure! {
    /// Counts of requests in one version (section 2.1, `rpcb_stat`).
    Statistics {
        /// Requests of each procedure.
        requests: [u32; PROCEDURES],
        /// Mappings established.
        set: u32,
        /// Mappings deleted.
        unset: u32,
        /// Addresses asked for.
        addresses: List<AddressCount>,
        /// Procedures called.
        calls: List<CallCount>,
    }
}

#[cfg(test)]
#[path = "wire/tests.rs"]
mod tests;
