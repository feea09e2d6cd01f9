//! Headers of a received message. The client library's own accessor panics at a name that is not UTF-8, and any producer
//! can send one.

use rdkafka::bindings::{rd_kafka_header_get_all, rd_kafka_message_headers, rd_kafka_resp_err_t};
use rdkafka::message::BorrowedMessage;
use std::borrow::Cow;
use std::ffi::CStr;
use std::ptr;

/// Calls `each` with name and value of every header, in order. What is not UTF-8 in a name reads as U+FFFD.
pub fn for_each(message: &BorrowedMessage, mut each: impl FnMut(Cow<str>, Option<&[u8]>)) {
    let mut headers = ptr::null_mut();
    // SAFETY: the message is alive; the list it hands out is its own and lives as long.
    let error = unsafe { rd_kafka_message_headers(message.ptr(), &mut headers) };
    if error != rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
        return;
    }
    for at in 0.. {
        let (mut name, mut value, mut value_bytes) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the list is the message's; past its end the call says so and writes nothing.
        let error = unsafe { rd_kafka_header_get_all(headers, at, &mut name, &mut value, &mut value_bytes) };
        if error != rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            return;
        }
        // SAFETY: the name ends in a NUL; a value that is there has this many bytes; both live as long as the message.
        let (name, value) = unsafe {
            let value = (!value.is_null()).then(|| std::slice::from_raw_parts(value.cast::<u8>(), value_bytes));
            (CStr::from_ptr(name), value)
        };
        each(name.to_string_lossy(), value);
    }
}
