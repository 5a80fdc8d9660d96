"""What users pass for rows, as one value that also says what each column is; of all verbs and kinds of model."""
