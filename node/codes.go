package node

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeEntry        fault.Code = "entry"         // the connection did not come through an app's address
	CodePiece        fault.Code = "piece"         // a file of souk's directory is wrong
	codePieceMissing fault.Code = "piece_missing" // a file of souk's directory is missing
	codePieces       fault.Code = "pieces"        // the list of souk's files is damaged
	codeServe        fault.Code = "serve"         // the API stopped serving
)
