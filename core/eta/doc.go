// Package eta turns point forecasts of a time, such as "this job starts in 40 s", into intervals that hold a stated part
// of the time, by what came of earlier forecasts of the same kind. It is pure: now is an argument.
//
// # Words
//
// A *forecast* is a duration from now, computed by the caller; its *outcome* is how long it really took. The *score* of a forecast is log((outcome + soft) / (forecast + soft)): 0 if it was exact, and log 2 if it
// took twice as long. An *interval* is said when the forecast is made, and *holds* if the outcome is within. Only such
// intervals count (Coverage): none is made afterwards.
//
// # How an interval is made
//
// Of the last scores of the kind and of forecasts of about this size, those quantiles are taken that leave out as much
// as may miss; the tail that one side does not use is given to the other. This is split conformal prediction (Vovk et
// al., "Algorithmic Learning in a Random World", 2005) on a sliding window.
//
// The part left out is then adapted: it shrinks after each miss and grows after each interval that held (Gibbs and
// Candès, "Adaptive Conformal Inference Under Distribution Shift", NeurIPS 2021), so that in the long run the stated part
// holds although load drifts. When it has shrunk to nothing, the window is too narrow for what happens now, and the
// interval is stretched beyond it, as the quantile tracker of Angelopoulos, Candès and Tibshirani does ("Conformal PID
// Control for Time Series Prediction", NeurIPS 2023).
//
// # Outcomes come late
//
// Long outcomes become known last, so a window of known outcomes alone would have too many short ones. Therefore
// forecasts whose outcome is not known yet are in it as censored: they take at least as long as has passed (Kaplan and
// Meier, "Nonparametric Estimation from Incomplete Observations", JASA 1958). And an interval counts as missed as soon
// as its end has passed, not only when the outcome is known.
//
// Forecasts that are made at about the same time share their fate. Of those made within a small part of the time that
// they forecast one teaches, and all count.
package eta
