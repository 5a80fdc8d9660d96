"""Private parts of other libraries: each use of one stands in this package, in a module for each library.

A function here has a private part's purpose in its name, and says in its docstring what breaks without that part. A
module's docstring names the versions that it was made for. What a public interface can do is not here.

Modules of this package import their library when it is needed, unless a docstring says otherwise, and this one imports
none of them. ``make canary`` runs their tests with the newest pre-releases.
"""
