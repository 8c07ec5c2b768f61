//! The front end as a whole: what a source gives, or what its user is told.
