//! The catalogue of all messages to users, and the list that collects them.
//!
//! Invariant: every message is defined here. A message says at the user's own token what is wrong and how to
//! mend it, and never names anything internal.

pub(crate) mod hints;

use std::fmt::{self, Display};

use proc_macro2::{Span, TokenStream};

/// Message of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message(String);

/// All errors of one `fuse!`.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    errors: Vec<(Span, Message)>,
}

impl Diagnostics {
    /// Adds an error, unless the same text already exists for the same token.
    pub(crate) fn push(&mut self, span: Span, message: Message) {
        let same =
            |(at, text): &(Span, Message)| *text == message && format!("{at:?}") == format!("{span:?}");
        if !self.errors.iter().any(same) {
            self.errors.push((span, message));
        }
    }

    /// Returns true if one of the errors from number `first` on has this text.
    pub(crate) fn says(&self, message: &Message, first: usize) -> bool {
        self.errors.iter().skip(first).any(|(_, text)| text == message)
    }

    /// Number of errors.
    pub(crate) fn len(&self) -> usize {
        self.errors.len()
    }

    /// Returns true if there is no error.
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// Returns the texts, in the order of discovery.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        self.errors.iter().map(|(_, message)| message.0.as_str())
    }

    /// Iterates over the tokens and texts, in the order of discovery.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Span, &str)> {
        self.errors.iter().map(|(span, message)| (*span, message.0.as_str()))
    }

    /// Returns one `compile_error!` for each error, at its token.
    pub fn to_compile_errors(&self) -> TokenStream {
        let errors = self.errors.iter();
        errors.map(|(span, message)| syn::Error::new(*span, &message.0).to_compile_error()).collect()
    }
}

impl Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Message {
    /// Adds a note that the error is in a call of this function.
    pub(crate) fn in_call(self, function: impl Display) -> Message {
        Message(format!("{}\nnote: in this call of `{function}`", self.0))
    }

    /// Adds a note that the error is at this token of a user's function, for a call of it.
    pub(crate) fn in_template(self, function: impl Display, token: impl Display) -> Message {
        Message(format!("{}\nnote: at `{token}` in `{function}`, as it is called here", self.0))
    }
}

/// Suggests the known name closest to `name`, if it is close enough. Upper and lower case are equal.
pub(crate) fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let letters = name.chars().count();
    let limit = (letters / 3).max(1).min(letters.saturating_sub(1));
    let lower = name.to_lowercase();
    let near = known.into_iter().map(|known| (distance(&lower, &known.to_lowercase()), known)).min();
    match near {
        Some((distance, near)) if distance <= limit && near != name => format!(": did you mean `{near}`?"),
        Some(_) | None => String::new(),
    }
}

/// Lists names in backquotes: commas between them, `and` before the last.
pub(crate) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.pop() {
        Some(last) if !names.is_empty() => format!("{} and {last}", names.join(", ")),
        last => last.unwrap_or_default(),
    }
}

/// Returns `1 value`, `2 values`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    match number {
        0 => format!("no {noun}s"),
        _ => format!("{number} {noun}{plural}"),
    }
}

/// Returns `1 is`, `2 are`.
pub(crate) fn were(number: usize) -> String {
    match number {
        0 => String::from("none are"),
        1 => String::from("1 is"),
        _ => format!("{number} are"),
    }
}

/// Lists the divisors of a number, with `or` before the last. A long list is cut off with `…`.
pub(crate) fn divisors(number: i64) -> String {
    const SHOWN: usize = 12;
    let mut all =
        (1..=number.min(1 << 16)).filter(|divisor| number % divisor == 0).map(|divisor| divisor.to_string());
    let mut shown: Vec<String> = all.by_ref().take(SHOWN).collect();
    if all.next().is_some() || number > 1 << 16 {
        return format!("{}, …", shown.join(", "));
    }
    match shown.pop() {
        Some(last) if !shown.is_empty() => format!("{} or {last}", shown.join(", ")),
        last => last.unwrap_or_default(),
    }
}

/// Edit distance that counts a swap of neighbours as one step (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            table[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let change = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let step = change.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                if swapped { step.min(table[i - 2][j - 2] + 1) } else { step }
            };
        }
    }
    table[a.len()][b.len()]
}

/// Formats names as dims: `[N, D]`.
pub(crate) fn dims<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    format!("[{}]", names.into_iter().collect::<Vec<_>>().join(", "))
}

macro_rules! catalogue {
    ($($name:ident($($arg:ident),*) = $text:literal;)*) => {
        $(pub(crate) fn $name($($arg: impl Display),*) -> Message {
            Message(format!($text))
        })*
    };
}

// Syntax.
catalogue! {
    expected(what, found) = "expected {what}, found {found}";
    expected_operator(found) = "expected an operator, `;` or the end of the expression, found {found}";
    empty_parentheses() = "`()` has nothing in it: write a value, or dims as in `sum(x, (H, W))`; without dims, `sum(x)` is over all";
    chained_comparison(first, second) = "comparisons do not chain: `a {first} b {second} c` is written `a {first} b && b {second} c`";
    no_keyword(word) = "`{word}` is not part of the language: a function is `let`s, assignments to `&mut` parameters, and one expression";
    no_where() = "a value for each element is chosen by `if mask {{ a }} else {{ b }}`";
    no_let_in_inline() = "the inline form is one expression: write a `fn` in `fuse! {{ … }}` to use statements";
    no_let_type() = "a `let` takes the type of its value: leave out the `: …`";
    no_let_list() = "the names of several values stand in parentheses: write `let (a, b) = …;`";
    no_range_inclusive() = "a range ends before its second bound: write `..4` for the elements up to 3";
    no_range_step() = "a range has no step: the first of every two elements is `at(split(x, D -> (K, P = 2)), P, 0)`";
    no_let_mut() = "values do not change: leave out the `mut`, and give each value its own `let`";
    no_let_else() = "`let` needs a value: write `let x = …;`";
    if_without_else() = "`if` is an expression and needs its `else`: write `if … {{ … }} else {{ … }}`";
    no_tail() = "this block has no value: end it with an expression, without `;`";
    unused_value() = "nothing uses this value: give it a name with `let`, assign it, or drop it";
    unused_last() = "nothing uses this value: return it without `;`, assign it, or drop it";
    assign_in_block() = "an assignment stands on its own in the function: write `p = if … {{ … }} else {{ … }};`";
    assign_target() = "only a `&mut` parameter, by its name, can be assigned to";
    too_deep() = "this expression is nested too deeply: give parts of it a name with `let`";
    too_many_numbers() = "too many operations on numbers alone: write their result, or a tensor before them";
    no_text_here(text) = "`{text}` is text, which no function takes: choices are functions of their own, and numbers have no quotes";
    text_otherwise(text, how) = "`{text}` is text, which no function takes: {how}";
    bad_suffix(suffix) = "`{suffix}` is not a suffix for a number here: write a dtype of this language, like `f32` or `i32`, or leave it out";
    huge_literal(text) = "`{text}` is too large for any integer: a float has a point, `{text}.0`";
    call_of_value() = "only functions can be called: write `name(…)`, or `*` for a product";
    value_called(name) = "`{name}` is a value and cannot be called: a product is written `{name} * (…)`";
    no_field(field) = "values have no fields: `x.{field}` is written `x.{field}(…)` if `{field}` is a function";
    field_otherwise(field, how) = "values have no fields like `{field}`: {how}";
    no_field_inline(field) = "values have no fields: an expression of Rust stands in braces, `{{….{field}}}`";
    no_tuple_field_otherwise(how) = "values have no fields: {how}";
    no_tuple_field() = "values have no fields: take several values apart with `let (a, b) = …;`";
    no_index() = "values are not indexed with `[…]`: the elements along a dim are `at(x, C, 0)`";
    no_dims_here() = "dims are declared in the signature, and in the inline form at each tensor: leave out the `[…]` here";
    no_list_otherwise(how) = "there are no lists: {how}";
    no_list_of_dims(write) = "dims are named without brackets here: write `{write}`";
    no_list() = "there are no lists: pass numbers as a tensor, and write several values as a tuple, `(a, b)`";
    no_closure() = "there are no closures: write a private `fn`, or its body in place";
    no_path() = "paths with `::` cannot be named here: pass the value as a parameter (`PI`, `E`, `INF` and `NAN` are known)";
    no_path_inline() = "paths with `::` need braces: `{{path::to::TENSOR}}`, or `scalar(path::to::NUMBER)` for a number";
    no_reference() = "values are not references: leave out the `&` or `*`";
    no_question() = "no `?` in here: it stands after `fuse!(…)` and after calls of its functions, and a choice is `if … {{ … }} else {{ … }}`";
    no_let_here() = "a `let` is a statement of its own: write it before this one";
    no_block() = "a block belongs to an `if` or an `else`: write its `let`s before this expression";
    no_product_operator() = "`@` is no operator: a product is summed along the dim that both have, as in `matmul(x, w, K)`";
    no_tilde() = "`~` is no operator: the negation is `!mask`";
    word_operator(word, symbol) = "`{word}` is no operator: write `{symbol}`";
    choice_first() = "the condition of a choice comes first: write `if mask {{ x }} else {{ y }}`";
    no_text(how) = "an argument is no text: {how}";
    no_power() = "a power is a function: write `pow(x, y)`";
    no_positive() = "there is no `+` before a value: leave it out";
    no_macro(name) = "macros of Rust, like `{name}!`, are not part of the language: pass what one makes as a parameter, and print what is returned";
    no_macro_inline(name) = "macros of Rust need braces: `{{{name}!(…)}}` for a tensor, or `scalar({name}!(…))` for a number";
    capture_index(rust) = "brackets hold dims, like `[N, D]`: an element of a list is Rust, which stands in braces, `{rust}`";
    capture_index_or_dim(name, upper, rust) = "the name of a dim starts with an uppercase letter: write `{upper}` for `{name}`, or `{rust}` for an element of a list";
    rust_expression(error) = "this is not a Rust expression: {error}";
    cast_type(found) = "expected a dtype after `as`, like `x as f32`, found {found}";
    cast_dims() = "a cast names a dtype only, without dims: write `x as f32`";
    outside_call(what) = "`{what}` belongs among the arguments of an index operation";
    after_inline(found) = "the inline form is one expression, and may end with `=> [N, M]`: {found} does not belong to it";
    empty() = "there is nothing in this `fuse!`: write functions, like `pub fn double(x: f32[N]) -> f32[N] {{ 2.0 * x }}`, or an expression over tensors, like `relu(a + b) * c`";
    empty_inline() = "there is nothing to compute: write an expression over tensors, like `fuse!(relu(a + b) * c)`";
    item_start(found) = "expected a function, `fn name(…)` or `pub fn name(…) -> f32[N]`, found {found}";
    inner_attribute() = "attributes stand before the function they are for: write `#[…]` or `///`";
    visibility(found) = "expected `pub`, `pub(crate)`, `pub(super)`, `pub(self)` or `pub(in path)`, found `pub({found})`";
    qualifier(word) = "functions have no `{word}`: leave it out";
    constant_item(name, function) = "there are no constants among the functions: write a private function, `fn {function}() {{ … }}`, and `{function}()` for `{name}`";
    param_self() = "functions have no `self`: give the parameter a name";
    param_attribute() = "a parameter takes no attributes and no documentation: write them at the function";
    param_const() = "a parameter has no `const`: leave it out, or write the number where it is used";
    rust_type(write) = "a tensor is declared by its dtype and its dims: write `{write}`";
    results_tuple() = "several results are a tuple: write `-> (f32[N], f32[N])`";
    no_unit() = "a result is a tensor: write `-> f32[N]`, or leave out `-> ()` where the function changes its `&mut` parameters alone";
    param_mut() = "a tensor that changes is `x: &mut f32[N]`: leave out the `mut` before the name";
    param_reference(name, dtype) = "a tensor is read without `&`: write `{name}: {dtype}[N]`, or `{name}: &mut {dtype}[N]` to change it";
    param_in_place_scalar(name, dtype) = "`&mut` is for tensors: write `{name}: &mut {dtype}[]` for a scalar on the device";
    param_default_exported() = "a default belongs to a private function: callers of an exported one pass every argument";
    param_untyped_exported(name) = "an exported function says the type of each parameter: write `{name}: f32[N]`, `{name}: f32` or `{name}: dim`";
    param_default_order(name) = "`{name}` needs a default too: it comes after a parameter that has one";
    tensor_type(found) = "expected a type, like `f32[N, D]`, found {found}";
    result_dims(dtype) = "a result is a tensor: write `{dtype}[N, D]`, or `{dtype}[]` for a single value";
    dim_name(found) = "expected the name of a dim, like `N`, `C = 3` or `3`, found {found}";
    dim_lowercase(name, upper) = "the name of a dim starts with an uppercase letter: write `{upper}` for `{name}`";
    dim_arithmetic() = "a dim is a name, without arithmetic: give another extent a name of its own";
    dims_brackets(dtype) = "the dims of a tensor stand in one pair of brackets: write `{dtype}[N, D]`";
    dim_extent() = "expected the extent of the dim, a whole number from 1 to 2147483647";
    generic_bounds() = "a generic is the type of the elements, without bounds: write `fn f<E>(x: E[N])`, and dims without a declaration";
    generic_dtype(name) = "`{name}` is a dtype: give the generic another name, like `T`";
    one_generic() = "a function is generic over one type of elements: write the dtype of the others";
    unused_generic(name) = "no parameter and no result is of `{name}`: use it, like `x: {name}[N]`, or leave it out";
    attribute_later(name) = "`#[fuse({name})]` is not available yet";
    attribute_unknown(name, near) = "there is no `#[fuse({name})]`{near} (there are `off`, `fast_math`, `strict` and `targets(…)`)";
    attribute_both() = "`fast_math` approximates and `strict` rounds as if nothing was fused: leave one of them out";
    attribute_empty() = "`#[fuse(…)]` says how to compile the function: write `#[fuse(off)]` or `#[fuse(targets(ptx, wgsl, cpu))]`";
    attribute_private() = "`#[fuse(…)]` belongs on an exported function: a private one is compiled into its callers";
    target_unknown(name, near) = "there is no target `{name}`{near} (there are `ptx`, `wgsl` and `cpu`)";
    targets_empty() = "name at least one target: `#[fuse(targets(ptx, wgsl, cpu))]`";
    duplicate_target(name) = "the target `{name}` is named twice";
}

// Names.
catalogue! {
    unknown_name(name, near) = "there is no value `{name}` here{near}";
    constant_of_rust(name, lower) = "there is no value `{name}` here: a constant of Rust is a parameter of the function, like `{lower}: f32`, or a number in it";
    no_prefix(name, function) = "there is no value `{name}` here, and functions have no prefix: write `{function}(…)`";
    unknown_function(name, near) = "there is no function `{name}`{near}";
    unknown_function_inline(name, args) = "there is no function `{name}`: one of Rust is called in braces, `{{{name}({args})}}`, or in `scalar(…)` for a number";
    unknown_method_inline(name, rust) = "there is no function `{name}`: a method of Rust is called in braces, `{rust}`";
    unknown_dim(name, near) = "there is no dim `{name}` here{near}";
    unknown_dim_inline(name) = "there is no dim `{name}` here: the inline form has the dims of its tensors, and a `fn` takes another as `{name}: dim`";
    function_as_value(name) = "`{name}` is a function: call it, `{name}(…)`";
    dtype_called(name) = "`{name}` is a dtype: a cast is written `x as {name}`";
    said_otherwise(name, how) = "there is no function `{name}`: {how}";
    function_later(name, how) = "`{name}` is not available yet: {how}";
    scalar_in_item() = "`scalar(…)` belongs to the inline form: here a scalar is a parameter, like `lr: f32`";
    conditional_call(name) = "which `{name}` this is depends on the `#[cfg]` of each: give those names of their own that are called here";
    duplicate_function(name) = "there are two functions `{name}` in this block: rename one";
    duplicate_param(name) = "there are two parameters `{name}`: rename one";
    duplicate_dim(name) = "the dim `{name}` is named twice in one tensor: give one of the two its own name, like `Other`; `rename(y, Other -> {name})` takes it for `{name}` again";
    duplicate_pattern(name) = "`{name}` is named twice in one pattern";
    name_clash(name, first, second) = "`{name}` is {first} and {second}: give one of them its own name";
    unused_but_dims(name, dims, params) = "only {dims} of the parameter `{name}` is used: call it `_{name}`, or write `{params}` to take extents from the caller";
    unused_param(name) = "the parameter `{name}` is never used: use it, remove it, or call it `_{name}`";
    hides_function(name) = "`{name}` calls itself, because its name hides the language's own `{name}`: give it another";
    nothing_exported(name) = "nothing in this `fuse!` can be called from outside of it: write `pub fn {name}`, with the type of each parameter and of the result";
    private_uncalled(name) = "nothing calls `{name}`: without `pub` it is for this `fuse!` alone; write `pub fn {name}`, or `pub(self) fn {name}` to call it from this module alone; `#[allow(dead_code)]` keeps it as it is";
    recursion(name) = "`{name}` calls itself: functions are expanded at each call, so none can";
    not_callable_in_place(name) = "`{name}` has `&mut` parameters: calling such a function from another one is not available yet";
    no_value(name) = "`{name}` gives no value: end its body with an expression, without `;`";
}

// Calls.
catalogue! {
    more_arguments(forms, how) = "{forms} takes no more arguments: {how}";
    argument_otherwise(function, name, how) = "`{function}` has no argument `{name}`: {how}";
    number_for_dim(function, dim, name, number) = "`{dim}` of `{function}` is the name of a dim, or left out for all: if the number is meant for `{name}`, write `{name} = {number}`";
    arity(name, wants, given) = "`{name}` takes {wants}, but {given} given";
    unknown_argument(function, name, near) = "`{function}` has no parameter `{name}`{near}";
    argument_twice(name) = "the argument `{name}` is given twice";
    positional_after_named() = "arguments without a name come before those with one";
    named_argument(function, name) = "the arguments of `{function}` have no names: leave out the `{name} =`";
    missing_argument(function, name) = "this call of `{function}` lacks the argument `{name}`";
    wants_value(function, name) = "the parameter `{name}` of `{function}` is a value, not a dim";
    no_form(name, forms) = "`{name}` takes other arguments: it is called as {forms}";
    no_form_exchanged(name, forms, call) = "`{name}` takes other arguments, {forms}: did you mean `{call}`?";
    no_form_otherwise(name, forms, how) = "`{name}` takes other arguments, {forms}: {how}";
    wants_dim(function, name, like) = "the parameter `{name}` of `{function}` is a dim: pass the name of a dim, like `{like}`";
    tensor_first(function, dim) = "the dim comes after the value: write `{function}(x, {dim})`";
    wants_dim_last(function) = "`{function}` takes a value and then dims: write `{function}(x, D)`, `{function}(x, (H, W))`, or `{function}(x)` for all";
    argument_dtype(function, name, wants, is) = "the parameter `{name}` of `{function}` is {wants}, this is {is}: write `… as {wants}`";
    argument_dims(function, name, wants, has) = "the parameter `{name}` of `{function}` has dims {wants}, this has {has}: a private function whose parameters have no types takes any dims";
    callee_dim(function, dim) = "`{function}` has the dim `{dim}`, which this function lacks: a call binds dims by name, so give one that name, as in `rename(x, N -> {dim})`, or take its extent from the caller, `{dim}: dim`";
    callee_extent(function, dim, wants, has) = "the dim `{dim}` of `{function}` has extent {wants}, here it has {has}: declare `{dim} = {wants}`";
    index_argument() = "`index` takes a dim: write `index(T)` for the coordinate along `T`";
    dim_twice(function, dim) = "`{function}` is given the dim `{dim}` twice";
    one_dim(function, has) = "`{function}` goes along one dim, and this stands for {has}: name one dim";
    callee_one_dim(function, dim, has) = "`{dim}` of `{function}` is one dim of a tensor, and here it stands for {has}: call it where `{dim}` is one";
    dim_default() = "a dim is left out for all dims of the arguments before it: write `D: dim = all`";
    at_arguments() = "`at` takes a value, a dim and a position: write `at(x, C, 0)`";
    at_position() = "the position follows from extents: write `at(x, C, 0)` or `at(x, T, T - 1)`, and `take(x, T, i)` where a value says which";
    at_negative(position, dim, back) = "positions count from 0, and {position} comes before the first: from the end it is `{dim} - {back}`";
    at_out_of_range(position, dim, extent) = "the position {position} is outside of `{dim}`, which has {extent} elements, from 0";
    rename_arguments() = "`rename` takes a value and a dim with its new name: write `rename(x, T -> S)`";
    dims_differ(function, first, second, dim) = "`{function}` compares two values element by element, and these have {first} and {second}: the dim `{dim}` is not one of both (`rename(y, E -> D)` takes one dim for another)";
    factor_other_dim(function, position, dim, has, factor, other) = "the {position} factor of `{function}` lacks the dim `{dim}`, along which products are summed: it has {has}, and `rename({factor}, {other} -> {dim})` takes one dim for another";
    factor_lacks_dim(function, position, dim, has) = "the {position} factor of `{function}` lacks the dim `{dim}`, along which products are summed: it has {has}";
    factors_alike(function, has, own, dim) = "both factors of `{function}` have {has}, so that neither has a dim of its own: `rename(w, {own} -> Other)` gives it one, and the sum of products of equal dims is `sum(x * w, {dim})`";
    split_arguments() = "`split` takes a value and a dim with what it is split into: write `split(x, C -> (H, D))`";
    merge_arguments() = "`merge` takes a value and dims with what they are merged into: write `merge(x, (H, D) -> C)`";
    wants_one_number(function, argument, has, how) = "`{argument}` of `{function}` is one number, and this has {has}: {how}";
    wants_scalar(function, name, is, how) = "`{name}` of `{function}` is a number, and this is {is}: {how}";
    class_weights(function, name, dim, has) = "`{name}` of `{function}` is one number for each class, with the dim `{dim}` alone, and this has {has}";
    wants_classes(function, is) = "`{function}` takes classes as `i32` or `u32`, this is {is}: write `… as i32`";
    part_is_value(name) = "`{name}` is a value: a dim is split into dims and whole numbers that are written in the source";
    two_new_dims(first, second) = "`{first}` and `{second}` are both new: give the extent of one, like `{first}: dim`";
    split_twice(dim) = "`{dim}` stands for other dims already: a dim is split one way in a function, so rename it for another way, as in `split(rename(x, {dim} -> Other), Other -> (Outer, 2))`";
    groups_twice(function, dim) = "`{function}` splits `{dim}`, which stands for other dims already: a dim is split one way in a function, so rename it for another way, as in `{function}(rename(x, {dim} -> Other), Other, 2)`";
    groups_number(function, dim) = "`{function}` takes how many groups of `{dim}` there are as a whole number from 1 that is written in the source, or as a dim, like `G: dim`";
    empty_part(function) = "`{function}` makes dims of 1 element or more, and this one has 0: write a number from 1";
    split_extents(dim, whole, parts) = "`{dim}` has {whole} elements, and the dims that stand for it {parts}: choose some whose extents multiply to {whole}";
    groups_extent(function, groups, dim, extent, divisors) = "`{function}` makes {groups} groups of `{dim}`, which has {extent} elements: groups have equally many, so take {divisors} of them";
    split_beside(whole, part) = "this value has `{whole}` and `{part}`, a part of it: split all of its operands, or merge them";
    split_common(first, second) = "this value has `{first}` and `{second}`, which have a part in common: name parts that are to differ, as in `split(x, {second} -> (Outer, Inner = 2))`, or rename one of the dims first, as in `rename(x, {second} -> Other)`";
    slice_arguments() = "`slice` takes a value, a dim with the name of the part, and a range: write `slice(x, D -> K, 0..D/2)`";
    flip_arguments() = "`flip` takes a value and a dim: write `flip(x, D)`";
    roll_arguments() = "`roll` takes a value, a dim and a distance: write `roll(x, D, 1)`";
    pad_arguments() = "`pad` takes a value, a dim with the name of the longer one, and how many elements come before and after: write `pad(x, D -> P, 1, 1)`, or `pad(x, D -> P, 1, 1, value = 0.5)`";
    concat_arguments() = "`concat` takes values with their dims, and the name of the dim that they make: write `concat((x, A), (y, B) -> D)`";
    take_arguments() = "`take` takes a table, a dim of it, and where along the dim: write `take(table, V, ids)`";
    unfold_arguments() = "`unfold` takes a value and windows, each a dim and its taps with the name of their positions: write `unfold(x, (W, K = 3) -> Q)`, or `unfold(x, (H, KH) -> P, (W, KW) -> Q, stride = 2, padding = 1, dilation = 1)`";
    conv_arguments() = "`conv` takes a value, weights, the dims that are summed, and windows, each a dim and its taps with the name of their positions: write `conv(x, w, C, (H, KH) -> P, (W, KW) -> Q)`, with `stride = 2`, `padding = 1` or `dilation = 2` after the windows";
    conv_transpose_arguments() = "`conv_transpose` takes a value, weights, the dims that are summed, and windows, each a dim and its taps with the name of their positions: write `conv_transpose(x, w, C, (H, KH) -> P, (W, KW) -> Q, stride = 2)`, with `padding = 1`, `output_padding = 1` or `dilation = 2`";
    pool_arguments(function) = "`{function}` takes a value and windows, each a dim and its number of taps with the name of their positions: write `{function}(x, (H, 2) -> P, (W, 2) -> Q)`, with `stride = 2`, `padding = 1` or `dilation = 2` after the windows";
    window_entries(option, has, wants) = "`{option}` has {has} entries here: write one number for all windows, or an entry for each of the {wants}, as in `{option} = (2, 1)`";
    window_padding() = "the padding of a window is a number for both sides, `(before, after)`, or `same`";
    window_of_window(function, dim) = "`{dim}` is a dim that this `{function}` makes: another call takes windows along it";
    transposed_padding() = "the padding of `conv_transpose` is a number for both sides, or `(before, after)`";
    window_least(function, least) = "`{function}` takes a number of at least {least} here";
    window_too_long(function, dim, span, whole) = "the window of `{function}` covers {span} elements, and `{dim}` has {whole} with its padding";
    slice_range(start, end, dim, extent) = "`{start}..{end}` is no part of `{dim}`, which is 0..{extent}";
    pad_negative() = "`pad` adds elements: write `slice` to leave some out";
    amount(function) = "`{function}` takes a number of elements here that follows from extents: write whole numbers, dims, and `+ - * /`";
    roll_distance(is) = "the distance of `roll` is a number of elements of type i32, this is {is}";
    take_ids(is) = "`take` takes integers that say where, this is {is}";
    index_taken(function, dim) = "this value has the dim `{dim}` already: give the dim that `{function}` makes a name that the value has not";
    index_extent(function, dim, wants, is) = "`{function}` makes `{dim}` of extent {wants}, but it has {is} here: give it a name of its own";
    rename_taken(dim) = "this value is made with the dim `{dim}` already: rename to a name that nothing in it has";
    dims_of_one_name(dim, first, second) = "two dims `{dim}` meet here, of {first} and {second} elements: a function that makes a dim gives it to its caller by its name, so have one of them made by another name";
    no_such_axis(dim, has) = "this value has no dim `{dim}`: it has {has}";
    nothing_to_reduce(function) = "`{function}` combines the elements along dims, and this value has none";
    nothing_to_compare(function, dim) = "`{function}` along `{dim}` is of no elements: its extent is 0";
    reduce_or_compare(function, dim, number) = "`{function}(x, {dim})` could reduce over the dim `{dim}` or compare with the number: name the dim, like `C = {dim}`, or write `{number}`";
    too_many_terms() = "this function grows too large: it has too many operations once all calls are expanded";
}

// Types.
catalogue! {
    unknown_dtype(name, near) = "there is no dtype `{name}`{near} (there are `f32`, `f16`, `bf16`, `f64`, `i32`, `u32`, `i16`, `u16`, `i8`, `u8` and `bool`)";
    no_target(name, what) = "`{name}` can run on none of its targets: {what}; add `cpu` to them";
    cast_to_bool() = "a number does not cast to `bool`: write `x != 0`";
    mixed(operator, left, right, fix) = "`{operator}` mixes {left} and {right}: write `{fix}`";
    mixed_arguments(left, right) = "the arguments mix {left} and {right}: cast one of them, like `… as {left}`";
    mixed_branches(left, right, fix) = "the sides of this `if` are {left} and {right}: write `{fix}`";
    number_and_bool(operator) = "`{operator}` mixes a number and a `bool`: compare the number (`x != 0`), or pick one with `if`";
    float_literal_for_int(dtype) = "a number with a point meets `{dtype}`: write a whole number, or cast the other side `as f32`";
    literal_range(value, dtype, low, high) = "`{value}` does not fit in `{dtype}`: it holds {low} to {high}";
    huge_float() = "no type holds as large a number: `INF` is the infinity";
    float_range(value, dtype) = "`{value}` does not fit in `{dtype}`: the largest is about 3.4e38 (`INF` is the infinity)";
    wants_float(what, is) = "`{what}` takes floats, this is {is}: write `… as f32`";
    wants_dtype(what, wants, is) = "`{what}` takes `{wants}`, this is {is}: write `… as {wants}`";
    wants_int(what, is) = "`{what}` takes integers, this is {is}";
    wants_bits(what, is) = "`{what}` takes integers or `bool`, this is {is}";
    bits_of_float(is) = "`^` takes integers or `bool`, this is {is}: a power is `pow(x, y)`";
    wants_number(what, is) = "`{what}` takes numbers, this is {is}: `… as i32` and `… as f32` make numbers of it";
    wants_bool(what, is) = "`{what}` takes `bool`, this is {is}: compare it, like `x != 0`";
    wants_truths(function, is) = "`{function}` takes `bool`, this is {is}: compare it, as in `{function}(x != 0)`";
    wants_mask(is) = "`select` takes a `bool` first, this is {is}: compare it, like `x != 0`; the elements at one position along a dim are `at(x, C, 0)`";
    no_order() = "`bool` values have no order: only `==` and `!=` compare them";
    tuple_value() = "this is several values: take them apart with `let (a, b) = …;`";
    not_a_tuple(count) = "this is one value, no tuple of {count}: a pattern that is one name, like `let y = …`, takes it";
    one_of_several(how) = "this is one value: {how}";
    tuple_length(has, wants) = "this is {has} values, and the pattern names {wants}";
    tuple_branches() = "the sides of this `if` do not give the same number of values";
}

// Results.
catalogue! {
    missing_result(name, ty) = "`{name}` returns {ty}, but its body ends without a value: end it with an expression, without `;`";
    unexpected_result(name) = "`{name}` declares no result: write `-> f32[N]` before the body, or drop this value";
    no_result(name) = "`{name}` computes nothing: give it a result, `-> f32[N]`, or a `&mut` parameter";
    result_count(name, wants, has) = "`{name}` returns {wants}, this is {has}";
    tuple_of_one() = "this is a tuple of one value, and one value is declared: leave out the comma, or declare `-> (f32[N],)`";
    no_tuple_of_one(name) = "`{name}` returns a tuple of one value: write `(x,)`, or declare `-> f32[N]`";
    result_dtype(wants, is) = "the result is declared {wants}, this is {is}: write `… as {wants}`, or declare {is}";
    result_bool(wants) = "the result is declared {wants}, this is bool: write `(…) as {wants}`";
    result_not_bool(is) = "the result is bool, this is {is}: compare it, like `x != 0`";
    result_other_dim(dim, summed, declared) = "this value has the dim `{dim}`, which the result {declared} lacks, in place of `{summed}`, along which it sums products: `rename(y, {dim} -> {summed})` of the sum `y` takes one dim for another";
    result_extra_dim(dim, declared, fix) = "this value has the dim `{dim}`, which the result {declared} lacks: declare `{fix}`, or reduce over `{dim}`, as in `mean(x, {dim})`";
    result_dim_unknown(dim) = "the extent of `{dim}` is not known: no parameter has it (`{dim}: dim` takes it from the caller)";
    dim_conflict(dim, first, second) = "the dim `{dim}` has extent {first} and extent {second}: a dim has one extent in a function";
    too_many_elements() = "no tensor has as many elements as these extents come to";
    too_many_dims(max) = "this function has more than {max} dims";
    assign_unknown(name, near) = "there is no `&mut` parameter `{name}`{near} (a new value is `let {name} = …;`)";
    assign_not_mut(name) = "`{name}` cannot be assigned to: declare it with `&mut`, as in `{name}: &mut f32[N]`, or use `let`";
    assign_let(name) = "`{name}` cannot be assigned to: only `&mut` parameters can, give the new value its own `let`";
    never_assigned(name) = "the `&mut` parameter `{name}` is never assigned: assign to it, or drop the `&mut`";
    assign_dtype(name, wants, is) = "`{name}` is {wants}, this is {is}: write `… as {wants}`";
    assign_other_dim(name, dim, summed, has) = "this value has the dim `{dim}`, which `{name}` lacks, in place of `{summed}`, along which it sums products: `{name}` has {has}, and `rename(y, {dim} -> {summed})` takes one dim for another";
    assign_extra_dim(name, dim, has) = "this value has the dim `{dim}`, which `{name}` lacks: `{name}` has {has}";
}

// The inline form.
catalogue! {
    some_dims_or_index(name, other, example) = "`{other}` is a tensor with one dim, and `{name}` has none: write `{name}{example}`, or `{{{other}}}` for an element of a list";
    some_dims(name, example) = "other tensors here have dims, `{name}` has none: write `{name}{example}`";
    capture_dims(name, first, second) = "`{name}` has dims {first} and dims {second}: one name is one tensor with its dims in one order, and `{{&{name}}}{second}` is the same tensor once more";
    inline_no_tensor() = "no tensor is named here: write an expression over tensors, like `fuse!(relu(a + b) * c)`";
    inline_tuple() = "the inline form has one result: write a `fn` in `fuse! {{ … }}` to have several";
    inline_result_dtype(wanted, is) = "the result of the inline form is `{wanted}`, this is {is}: write `… as {wanted}`";
    inline_bool_result() = "the result of the inline form is `f32`, this is bool: write `if … {{ 1.0 }} else {{ 0.0 }}`";
    inline_needs_dims(what) = "`{what}` needs dims, and the tensors here have none: name them, like `a[N, D]`";
    inline_result_dims(order) = "without dims the result has the shape of the tensors: drop `=> {order}`, or name the dims of each tensor";
    outer_product(has) = "no tensor here has all dims of the result: if all of {has} are meant, say so by ending with `=> {has}`";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_offered_and_far_ones_not() {
        assert_eq!(did_you_mean("rleu", ["relu", "exp"]), ": did you mean `relu`?");
        assert_eq!(did_you_mean("sigmod", ["sign", "sigmoid"]), ": did you mean `sigmoid`?");
        assert_eq!(did_you_mean("foo", ["relu", "exp"]), "");
        assert_eq!(did_you_mean("x", []), "");
        assert_eq!(did_you_mean("x", ["y"]), "");
        assert_eq!(did_you_mean("", ["y"]), "");
        assert_eq!(did_you_mean("pi", ["x", "PI"]), ": did you mean `PI`?");
        assert_eq!(did_you_mean("missing", ["isinf"]), "");
        assert_eq!(divisors(6), "1, 2, 3 or 6");
        assert_eq!((divisors(1), divisors(7)), (String::from("1"), String::from("1 or 7")));
        assert_eq!(divisors(1 << 20), "1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, …");
        assert_eq!((distance("", "abc"), distance("kitten", "sitting")), (3, 3));
    }
}
