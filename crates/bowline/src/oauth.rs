//! Bowline as the OAuth client of protected servers.
#![cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "the legs do not sign in yet; what they will use is tested"
    )
)]

mod challenge;
