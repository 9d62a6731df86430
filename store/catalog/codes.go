package catalog

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeBudget             fault.Code = "budget"               // the namespace's budget is wrong
	codeDisconnect         fault.Code = "disconnect"           // no disconnect policy has this name
	codeEvictionBudget     fault.Code = "eviction_budget"      // the eviction budget is wrong
	codeHeadMoved          fault.Code = "head_moved"           // the service has changed meanwhile
	codeKeyFile            fault.Code = "key_file"             // the key file of secrets is gone or cannot be read
	codeKeyLength          fault.Code = "key_length"           // the key is too long
	codeNamespaceDefault   fault.Code = "namespace_default"    // the default namespace stays
	codeNamespaceInUse     fault.Code = "namespace_in_use"     // an app is in the namespace
	codeNamespaceName      fault.Code = "namespace_name"       // the text cannot be a namespace's name
	codeNamespaceNameInUse fault.Code = "namespace_name_taken" // another namespace has this name
	codeNamespaceNotFound  fault.Code = "namespace_not_found"  // no namespace has this name
	codeNoSecret           fault.Code = "no_secret"            // the app has no secret that its group reads
	codeNoSharedKey        fault.Code = "no_shared_key"        // members share no key for secrets
	codePolicyInUse        fault.Code = "policy_in_use"        // the policy is in use
	codePolicyShipped      fault.Code = "policy_shipped"       // the policy comes with souk
	codePolicyUnknown      fault.Code = "policy_unknown"       // no policy has this name
	codePrice              fault.Code = "price"                // the price is wrong
	codeSecretMissing      fault.Code = "secret_missing"       // the secret's value is not here
	codeSecretName         fault.Code = "secret_name"          // the text cannot be a secret's name
	codeSecretsVersion     fault.Code = "secrets_version"      // the app's secrets are at an earlier version
	codeSecretValue        fault.Code = "secret_value"         // the secret cannot be a variable
	codeTooManyApps        fault.Code = "too_many_apps"        // the limit of apps is reached
	codeTooManyNamespaces  fault.Code = "too_many_namespaces"  // the limit of namespaces is reached
	codeTooManySecrets     fault.Code = "too_many_secrets"     // the app's limit of secrets is reached
	codeUnseal             fault.Code = "unseal"               // the secret cannot be opened with this key
)
